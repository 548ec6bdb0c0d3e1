export default 'typed'
