"""Whether speculation changes what is said: greedy answers with and without it, held against plain answers given twice."""
