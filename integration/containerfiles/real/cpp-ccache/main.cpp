#include <iostream>
int fib(int n);
int main() {
	for (int n = 1; n < 7; n++) std::cout << fib(n) << (n < 6 ? " " : "\n");
}
