import atexit

file = open("/workspace/out/open.txt", "w")
file.write("flushed at the end")
atexit.register(print, "at exit")
