def inner():
    return {}["missing"]


def outer():
    inner()


outer()
