console.log(require("lib").padded("left", 7, "right"));
