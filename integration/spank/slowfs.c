/* A directory as a parallel file system shows it: read-only, each request takes its time and is counted.
 * usage: SLOWFS_DIR=DIR SLOWFS_US=1000 SLOWFS_COUNT=FILE slowfs MOUNTPOINT -o allow_other
 * FILE gets two numbers of 64 bits: requests, and bytes read. cc slowfs.c $(pkg-config --cflags --libs fuse3) */
#define FUSE_USE_VERSION 31
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <fuse.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

static int root;
static long nanoseconds;
static _Atomic uint64_t *count;

/* The path below the directory, after the time that a request takes. */
static const char *request(const char *path) {
	struct timespec wait = {nanoseconds / 1000000000, nanoseconds % 1000000000};
	nanosleep(&wait, NULL);
	atomic_fetch_add(&count[0], 1);
	return path[1] ? path + 1 : ".";
}

static int get(const char *path, struct stat *stat, struct fuse_file_info *file) {
	(void)file;
	return fstatat(root, request(path), stat, AT_SYMLINK_NOFOLLOW) ? -errno : 0;
}

static int link_of(const char *path, char *text, size_t size) {
	ssize_t length = readlinkat(root, request(path), text, size - 1);
	if (length < 0)
		return -errno;
	text[length] = 0;
	return 0;
}

static int list(const char *path, void *to, fuse_fill_dir_t fill, off_t from, struct fuse_file_info *file,
		enum fuse_readdir_flags flags) {
	(void)from, (void)file, (void)flags;
	int fd = openat(root, request(path), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	DIR *dir = fd < 0 ? NULL : fdopendir(fd);
	if (!dir)
		return -errno;
	for (struct dirent *entry; (entry = readdir(dir));)
		fill(to, entry->d_name, NULL, 0, 0);
	closedir(dir);
	return 0;
}

static int open_file(const char *path, struct fuse_file_info *file) {
	if ((file->flags & O_ACCMODE) != O_RDONLY)
		return -EROFS;
	int fd = openat(root, request(path), O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
	if (fd < 0)
		return -errno;
	file->fh = fd;
	return 0;
}

static int read_file(const char *path, char *to, size_t size, off_t at, struct fuse_file_info *file) {
	request(path);
	ssize_t length = pread(file->fh, to, size, at);
	if (length < 0)
		return -errno;
	atomic_fetch_add(&count[1], length);
	return length;
}

static int close_file(const char *path, struct fuse_file_info *file) {
	(void)path;
	close(file->fh);
	return 0;
}

static void *start(struct fuse_conn_info *connection, struct fuse_config *config) {
	(void)connection;
	/* As long as a parallel file system's lock on what nobody changes. */
	config->attr_timeout = config->entry_timeout = config->negative_timeout = 600;
	config->kernel_cache = 1;
	return NULL;
}

int main(int argc, char **argv) {
	const char *dir = getenv("SLOWFS_DIR"), *time = getenv("SLOWFS_US"), *file = getenv("SLOWFS_COUNT");
	if (!dir || !time || !file)
		return fputs("slowfs: SLOWFS_DIR, SLOWFS_US and SLOWFS_COUNT are to be set\n", stderr), 2;
	nanoseconds = atol(time) * 1000;
	root = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	int fd = open(file, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	if (root < 0 || fd < 0 || ftruncate(fd, 16))
		return perror("slowfs"), 1;
	count = mmap(NULL, 16, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (count == MAP_FAILED)
		return perror("slowfs"), 1;
	static const struct fuse_operations operations = {.init = start, .getattr = get, .readlink = link_of,
		.readdir = list, .open = open_file, .read = read_file, .release = close_file};
	return fuse_main(argc, argv, &operations, NULL);
}
