print('bin')
