package main

import (
	"fmt"
	"os"
)

func main() { fmt.Printf("hello, %s\n", os.Args[1]) }
