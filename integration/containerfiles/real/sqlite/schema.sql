create table t(n integer, name text);
insert into t values (1, 'one'), (3, 'three');
