console.log('e');
