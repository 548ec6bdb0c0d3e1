puts 'c'
