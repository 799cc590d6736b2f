import numpy

print(round(3.14159, 2), numpy.ones(3) + numpy.arange(1, 4))
