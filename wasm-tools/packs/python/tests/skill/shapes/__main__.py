import sys

from shapes import area

print("area", area(int(sys.argv[1])), __package__)
