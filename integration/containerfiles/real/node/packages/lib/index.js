exports.padded = (left, n, right) => `${left} ${n} ${right}`;
