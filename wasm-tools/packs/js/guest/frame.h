/* Makes the two stacks of WebAssembly grow at a similar pace.
 *
 * What QuickJS can measure is the stack in linear memory, which holds arrays and what has an address. The engine's own
 * stack holds the rest, and has no measure: running over it ends the instance. Some functions that call themselves (the
 * parsers, JSON) use much of the second and hardly any of the first. Every function that asks how far the stack has
 * grown therefore gets this much more of the first.
 */
#ifndef SKILLCELL_FRAME_H
#define SKILLCELL_FRAME_H

#define FRAME_BYTES 192
#define BIG_FRAME __builtin_alloca(FRAME_BYTES)

#endif
