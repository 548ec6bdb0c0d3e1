import os
import sys

import shapes
import sibling

print(sibling.NAME, shapes.area(3), sys.path[0], os.getcwd(), __file__, __name__)
