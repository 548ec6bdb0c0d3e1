# /// script
# dependencies = ["left-open"
# ///
print()
