print('root')
