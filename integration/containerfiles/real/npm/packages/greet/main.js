#!/usr/bin/env node
console.log(`hello from ${process.argv[2]} by npm`);
