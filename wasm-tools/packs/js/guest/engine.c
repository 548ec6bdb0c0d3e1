/* QuickJS, compiled together with the few functions that need to see inside of it.
 *
 * QuickJS is compiled as it is, but for one call that the recipe redirects to parse_with_less_stack(). Four things have no public function: the limit of the stack (switched off for WASI,
 * where it works as well as elsewhere: without it endless recursion would end the instance instead of giving a
 * RangeError), the seed of Math.random (taken when the context is made, so it would be frozen into the snapshot), and
 * the record of a loaded module (which `require` of a module needs), and a source that begins before line 1.
 */
#include "frame.h"

struct JSParseState;
static int parse_with_less_stack(struct JSParseState *state);

#define __builtin_frame_address(level) BIG_FRAME
#include "quickjs.c"
#undef __builtin_frame_address
#include "guest.h"

/* The parser calls a dozen functions for one pair of brackets, of which only one asks for the stack, and uses a
 * multiple of the engine's own stack. What it may use is counted from where it starts, so that a script that is deep
 * in its own calls can still compile another. */
#define PARSER_STACK (64 << 10)

static int
parse_with_less_stack(JSParseState *state)
{
    JSRuntime *runtime = state->ctx->rt;
    uintptr_t before = runtime->stack_limit, here = js_get_stack_pointer();
    if (here > PARSER_STACK && here - PARSER_STACK > before)
        runtime->stack_limit = here - PARSER_STACK;
    int status = js_parse_program(state);
    runtime->stack_limit = before;
    return status;
}

void
engine_limit_stack(JSRuntime *runtime, size_t bytes)
{
    uintptr_t here = js_get_stack_pointer();
    runtime->stack_size = bytes;
    runtime->stack_top = here;
    runtime->stack_limit = here > bytes ? here - bytes : 0;
}

void
engine_seed_random(JSContext *context, uint64_t seed)
{
    /* The generator never leaves 0. */
    context->random_state = seed ? seed : 1;
}

JSModuleDef *
engine_find_module(JSContext *context, const char *name)
{
    return js_host_resolve_imported_module(context, "", name, JS_UNDEFINED);
}

JSValue
engine_compile(JSContext *context, const char *text, size_t length, const char *file, int line)
{
    return JS_EvalInternal(context, JS_UNDEFINED, text, length, file, line, JS_EVAL_TYPE_GLOBAL, -1);
}
