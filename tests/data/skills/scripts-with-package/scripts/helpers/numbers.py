def total(words):
    return sum(int(word) for word in words)
