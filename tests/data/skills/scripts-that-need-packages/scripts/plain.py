print("needs nothing")
