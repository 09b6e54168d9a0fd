"""Row filters as text: parse them, and fit them to the columns of a table or a stream.

```
place.py        errors that name the place in the text
tokens.py       words, constants and operators, with their positions
parser.py       tokens to an expression of PyIceberg
mistakes.py     messages for text that the parser refuses
times.py        dates and timestamps as people write them
literals.py     constants to values that a column can store
fitting.py      the columns and constants of a filter, checked against a schema
filter_text.py  an expression to text
```

The grammar is a superset of PyIceberg's, and gives the same expressions for its texts.
"""
