"""The tests, a package so that equal file names in different folders do not clash."""
