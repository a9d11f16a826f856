/*
 * zonda_fio.c: zonda's namespaces as an I/O engine of fio. README.md says how to build and use it.
 *
 * fio sets jobs up in its main thread and runs them in threads of their own, so a namespace has two kinds of handles here:
 *
 *   control  one for each namespace and process, shared, behind a mutex: geometry, zone reports, resets before a job runs;
 *   target   one for each job and file, opened by the job's thread: data, flushes, resets while the job runs.
 *
 * fio keeps one writer to a zone at a time (it holds the zone's lock until the write has ended), so that handles of several
 * jobs need no order among each other.
 */
#include <errno.h>
#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "fio.h"
#include "optgroup.h"
#include "zbd.h"

#include "zonda.h"

#define NS_PER_S 1000000000LL
/* How long to wait for one namespace while others may have completions, too. */
#define POLL_SLICE_NS 50000
/* Zones requested at a time. */
#define ZONES_AT_A_TIME 1024u
#define SECRET_BYTES_MAX 256

struct options {
	void *pad; /* fio overwrites the first word, and takes offset 0 for no option */
	char *uri;
	char *host_nqn;
	char *secret_file;
	char *controller_secret_file;
	unsigned int digests;
	unsigned int io_queues;
	unsigned int spin_us;
	unsigned int append;
};

#define OPTION(member, kind, words) \
	.name = #member, .lname = #member, .type = (kind), .off1 = offsetof(struct options, member), .help = (words), \
	.category = FIO_OPT_C_ENGINE, .group = FIO_OPT_G_INVALID

static struct fio_option option_table[] = {
	{ OPTION(uri, FIO_OPT_STR_STORE, "Image directory or nvme-tcp://HOST:PORT/NQN, instead of filename") },
	{ OPTION(host_nqn, FIO_OPT_STR_STORE, "Host NQN for connections to a server") },
	{ OPTION(secret_file, FIO_OPT_STR_STORE, "File with the DH-HMAC-CHAP secret of the host") },
	{ OPTION(controller_secret_file, FIO_OPT_STR_STORE, "File with the DH-HMAC-CHAP secret of the controller") },
	{ OPTION(digests, FIO_OPT_BOOL, "Enable header and data digests"), .def = "0" },
	{ OPTION(io_queues, FIO_OPT_INT, "I/O queues (connections) of each job to a server"), .def = "1", .minval = 1,
	  .maxval = 64 },
	{ OPTION(spin_us, FIO_OPT_INT, "Microseconds to poll for completions before sleeping"), .def = "0",
	  .maxval = 1000000 },
	{ OPTION(append, FIO_OPT_BOOL, "Write with Zone Append; fail if a block is written elsewhere than fio expects"),
	  .def = "0" },
	{ .name = NULL },
};

/* A namespace, for all jobs of the process. */
struct control {
	struct control *next;
	char *name;
	unsigned int users;
	zonda_namespace *ns;
	zonda_geometry geometry;
	pthread_mutex_t mutex;
};

/* A file of a job. */
struct target {
	struct control *control;
	zonda_namespace *ns; /* NULL until the job's thread runs */
	unsigned int in_flight;
	bool unsent;
};

/* A command; an io_u larger than one command is split into several. */
struct part {
	struct io_u *io_u;
	uint64_t append_lba; /* the expected LBA of an append */
	bool is_append;
};

/* In io_u->engine_data. */
struct work {
	unsigned int in_flight;
	struct part parts[];
};

/* A job: td->io_ops_data. */
struct job {
	struct thread_data *td;
	struct target *targets;
	unsigned int nr_targets;
	unsigned int parts_max; /* parts of one io_u */
	struct io_u **ready;    /* completed, not yet returned to fio; a ring */
	unsigned int ready_size, ready_head, ready_count;
	struct io_u **events; /* returned to fio by getevents */
	zonda_result *results;
	bool has_complained;
};

static pthread_mutex_t controls_mutex = PTHREAD_MUTEX_INITIALIZER;
static struct control *controls;

/* ---- Opening ------------------------------------------------------------------------------------------------------------ */

/* A secret is read from a file, because any user can read command lines. */
static int read_secret(const char *path, char secret[SECRET_BYTES_MAX])
{
	FILE *file = fopen(path, "r");
	bool is_read;

	if (file == NULL) {
		log_err("zonda: cannot read %s: %s\n", path, strerror(errno));
		return -errno;
	}
	is_read = fgets(secret, SECRET_BYTES_MAX, file) != NULL;
	fclose(file);
	if (!is_read) {
		log_err("zonda: no secret in %s\n", path);
		return -EINVAL;
	}
	secret[strcspn(secret, "\r\n")] = '\0';
	return 0;
}

static int open_namespace(const char *name, const struct options *o, uint32_t sharing, unsigned int depth,
			  zonda_namespace **ns)
{
	char secret[SECRET_BYTES_MAX], controller_secret[SECRET_BYTES_MAX];
	zonda_options options = ZONDA_OPTIONS_INIT;
	int ret;

	options.sharing = sharing;
	options.host_nqn = o->host_nqn;
	options.digests = o->digests;
	options.io_queues = (uint16_t)o->io_queues;
	options.queue_depth = (uint16_t)depth;
	options.spin_us = o->spin_us;
	if (o->secret_file) {
		ret = read_secret(o->secret_file, secret);
		if (ret)
			return ret;
		options.secret = secret;
	}
	if (o->controller_secret_file) {
		ret = read_secret(o->controller_secret_file, controller_secret);
		if (ret)
			return ret;
		options.controller_secret = controller_secret;
	}
	ret = zonda_open(name, &options, ns);
	if (ret < 0)
		log_err("zonda: %s (%s)\n", zonda_error_message(), zonda_error_remedy());
	return ret;
}

/* At the end of the process: fio cleans up after jobs that ran, and not after those that it could not set up. */
static void close_controls(void)
{
	struct control *control;

	pthread_mutex_lock(&controls_mutex);
	for (control = controls; control; control = control->next)
		zonda_close(control->ns);
	controls = NULL;
	pthread_mutex_unlock(&controls_mutex);
}

/* The control of a namespace, opened if necessary; NULL and errno on failure. */
static struct control *control_get(const char *name, const struct options *o)
{
	static bool is_registered;
	struct control *control;
	int ret;

	pthread_mutex_lock(&controls_mutex);
	for (control = controls; control; control = control->next) {
		if (strcmp(control->name, name) == 0) {
			control->users++;
			goto out;
		}
	}
	control = calloc(1, sizeof(*control));
	if (control == NULL || (control->name = strdup(name)) == NULL) {
		ret = -ENOMEM;
		goto fail;
	}
	ret = open_namespace(name, o, ZONDA_SHARE_YES, 0, &control->ns);
	if (ret == 0)
		ret = zonda_get_geometry(control->ns, &control->geometry);
	if (ret < 0)
		goto fail;
	pthread_mutex_init(&control->mutex, NULL);
	control->users = 1;
	control->next = controls;
	controls = control;
	if (!is_registered)
		is_registered = atexit(close_controls) == 0;
	goto out;
fail:
	if (control) {
		zonda_close(control->ns);
		free(control->name);
		free(control);
		control = NULL;
	}
	errno = -ret;
out:
	pthread_mutex_unlock(&controls_mutex);
	return control;
}

static void control_put(struct control *control)
{
	struct control **place;

	pthread_mutex_lock(&controls_mutex);
	if (--control->users == 0) {
		for (place = &controls; *place != control; place = &(*place)->next)
			;
		*place = control->next;
		if (zonda_close(control->ns) < 0)
			log_err("zonda: %s (%s)\n", zonda_error_message(), zonda_error_remedy());
		pthread_mutex_destroy(&control->mutex);
		free(control->name);
		free(control);
	}
	pthread_mutex_unlock(&controls_mutex);
}

static unsigned int parts_of(uint64_t bytes, const struct control *control, const struct options *o)
{
	const zonda_geometry *g = &control->geometry;
	uint64_t most = (o->append ? g->max_append_blocks : g->max_transfer_blocks) * g->block_size_bytes;

	return (unsigned int)((bytes + most - 1) / most);
}

static void job_free(struct job *job)
{
	unsigned int i;

	for (i = 0; i < job->nr_targets; i++) {
		struct target *target = &job->targets[i];

		if (target->ns && zonda_close(target->ns) < 0)
			log_err("zonda: %s (%s)\n", zonda_error_message(), zonda_error_remedy());
		if (target->control)
			control_put(target->control);
	}
	free(job->targets);
	free(job->ready);
	free(job->events);
	free(job->results);
	free(job);
}

/* A job with the controls of its files. */
static struct job *job_new(struct thread_data *td)
{
	const struct options *o = td->eo;
	struct job *job = calloc(1, sizeof(*job));
	struct fio_file *f;
	unsigned int i;

	if (job == NULL)
		return NULL;
	job->td = td;
	job->ready_size = td->o.iodepth;
	job->targets = calloc(td->o.nr_files ? td->o.nr_files : 1, sizeof(*job->targets));
	job->ready = calloc(job->ready_size, sizeof(*job->ready));
	job->events = calloc(job->ready_size, sizeof(*job->events));
	job->results = calloc(job->ready_size, sizeof(*job->results));
	if (!job->targets || !job->ready || !job->events || !job->results) {
		errno = ENOMEM;
		goto fail;
	}
	for_each_file(td, f, i) {
		struct target *target = &job->targets[i];
		unsigned int parts;

		target->control = control_get(f->file_name, o);
		if (target->control == NULL)
			goto fail;
		job->nr_targets = i + 1;
		parts = parts_of(td_max_bs(td), target->control, o);
		if (job->parts_max < parts)
			job->parts_max = parts;
	}
	return job;
fail:
	i = errno;
	job_free(job);
	errno = (int)i;
	return NULL;
}

static struct job *job_of(struct thread_data *td)
{
	struct job *job = td->io_ops_data;

	if (job == NULL || job->td != td) {
		job = job_new(td);
		if (job == NULL) {
			td_verror(td, errno, "zonda: open");
			return NULL;
		}
		td->io_ops_data = job;
	}
	return job;
}

/* The target of a file of the job. */
static struct target *target_of(struct thread_data *td, struct fio_file *f)
{
	struct job *job = job_of(td);
	struct fio_file *other;
	unsigned int i;

	if (job == NULL)
		return NULL;
	/* fio numbers the files after it has requested their zones. */
	for_each_file(td, other, i) {
		if (other == f)
			return &job->targets[i];
	}
	errno = ENOENT;
	return NULL;
}

/* The job's only file is that of `uri`, and has its name, so that jobs on one namespace share its zones in fio. */
static int name_file(struct thread_data *td, const char *uri)
{
	struct fio_file *f;
	char *name;

	if (!td->files_index) {
		add_file(td, uri, 0, 0);
		td->o.nr_files = td->o.nr_files ? td->o.nr_files : 1;
		td->o.open_files++;
		return 0;
	}
	if (td->o.nr_files > 1) {
		log_err("zonda: uri is one namespace, but the job has %u files: use filename instead\n",
			td->o.nr_files);
		return -EINVAL;
	}
	f = td->files[0];
	name = fio_file_smalloc(f) ? smalloc_strdup(uri) : strdup(uri);
	if (name == NULL)
		return -ENOMEM;
	f->file_name = name;
	return 0;
}

/* In the main thread, before any job runs. */
static int zonda_setup(struct thread_data *td)
{
	const struct options *o = td->eo;
	struct job *job;
	struct fio_file *f;
	unsigned int i;
	int ret;

	if (zonda_api_version() != ZONDA_API_VERSION) {
		log_err("zonda: compiled for version %u of zonda.h, linked with version %u\n", ZONDA_API_VERSION,
			zonda_api_version());
		return 1;
	}
	if (!td->o.use_thread && !td->o.create_serialize) {
		log_err("zonda: create_serialize=0 requires thread=1\n");
		td_verror(td, EINVAL, "zonda: thread=1");
		return 1;
	}
	if (td->o.io_submit_mode == IO_MODE_OFFLOAD) {
		log_err("zonda: io_submit_mode=offload is not supported: only the thread of a job can submit\n");
		td_verror(td, EOPNOTSUPP, "zonda: io_submit_mode");
		return 1;
	}
	/* The handles opened here cannot be used after a fork. */
	td->o.use_thread = 1;
	if (o->uri) {
		ret = name_file(td, o->uri);
		if (ret) {
			td_verror(td, -ret, "zonda: uri");
			return 1;
		}
	}
	job = job_of(td);
	if (job == NULL)
		return 1;
	for_each_file(td, f, i) {
		const zonda_geometry *g = &job->targets[i].control->geometry;

		f->filetype = FIO_TYPE_BLOCK;
		f->real_file_size = (uint64_t)g->zone_count * g->zone_size_blocks * g->block_size_bytes;
		fio_file_set_size_known(f);
	}
	return 0;
}

/* In the job's thread. */
static int zonda_init(struct thread_data *td)
{
	const struct options *o = td->eo;
	struct job *job = job_of(td);
	struct fio_file *f;
	unsigned int i;
	int ret;

	if (job == NULL)
		return 1;
	for_each_file(td, f, i) {
		struct target *target = &job->targets[i];
		/* A slot for every part of every io_u, and one more for synchronous calls. */
		uint64_t depth = (uint64_t)td->o.iodepth * job->parts_max + 1;

		depth = depth < UINT16_MAX ? depth : UINT16_MAX;
		ret = open_namespace(f->file_name, o, ZONDA_SHARE_AUTO, (unsigned int)depth, &target->ns);
		if (ret < 0) {
			td_verror(td, -ret, "zonda: open");
			return 1;
		}
	}
	return 0;
}

static void zonda_cleanup(struct thread_data *td)
{
	struct job *job = td->io_ops_data;

	if (job && job->td == td) {
		td->io_ops_data = NULL;
		job_free(job);
	}
}

static int zonda_io_u_init(struct thread_data *td, struct io_u *io_u)
{
	struct job *job = td->io_ops_data;
	struct work *work = calloc(1, sizeof(*work) + job->parts_max * sizeof(work->parts[0]));

	io_u->engine_data = work;
	return work == NULL;
}

static void zonda_io_u_free(struct thread_data *td, struct io_u *io_u)
{
	free(io_u->engine_data);
	io_u->engine_data = NULL;
}

/* ---- Zones -------------------------------------------------------------------------------------------------------------- */

/* The handle for a hook: that of the job while it runs, else that of the control, which is locked. */
static zonda_namespace *acquire_handle(struct target *target)
{
	if (target->ns)
		return target->ns;
	pthread_mutex_lock(&target->control->mutex);
	return target->control->ns;
}

static void release_handle(struct target *target)
{
	if (!target->ns)
		pthread_mutex_unlock(&target->control->mutex);
}

/* Logs the error of a failed call, and sets errno, which fio checks. */
static int complain(const struct fio_file *f, int ret)
{
	log_err("zonda: %s: %s (%s)\n", f->file_name, zonda_error_message(), zonda_error_remedy());
	errno = -ret;
	return ret;
}

static int zonda_get_zoned_model(struct thread_data *td, struct fio_file *f, enum zbd_zoned_model *model)
{
	struct target *target = target_of(td, f);

	if (target == NULL)
		return -errno;
	*model = target->control->geometry.conventional_zone_count < target->control->geometry.zone_count ?
			 ZBD_HOST_MANAGED :
			 ZBD_NONE;
	return 0;
}

static void convert(const zonda_zone *from, const zonda_geometry *g, struct zbd_zone *to)
{
	uint64_t block = g->block_size_bytes;

	to->start = from->start * block;
	to->len = g->zone_size_blocks * block;
	to->capacity = from->capacity_blocks * block;
	to->wp = from->write_pointer == ZONDA_NO_WRITE_POINTER ? to->start + to->capacity : from->write_pointer * block;
	to->type = from->type == ZONDA_ZONE_CONVENTIONAL ? ZBD_ZONE_TYPE_CNV : ZBD_ZONE_TYPE_SWR;
	to->cond = (enum zbd_zone_cond)from->state;
	if (from->state == ZONDA_STATE_READ_ONLY || from->state == ZONDA_STATE_OFFLINE) {
		/* fio has one state for zones that it must not use. */
		to->cond = ZBD_ZONE_COND_OFFLINE;
		to->wp = to->start;
	}
}

static int zonda_fio_report_zones(struct thread_data *td, struct fio_file *f, uint64_t offset, struct zbd_zone *zones,
				  unsigned int nr_zones)
{
	struct target *target = target_of(td, f);
	const zonda_geometry *g;
	zonda_zone *report;
	unsigned int done = 0;
	uint64_t lba;
	int i, ret = 0;

	if (target == NULL)
		return -errno;
	report = calloc(ZONES_AT_A_TIME, sizeof(*report));
	if (report == NULL)
		return -ENOMEM;
	g = &target->control->geometry;
	lba = offset / g->block_size_bytes;
	while (done < nr_zones && lba < g->zone_count * g->zone_size_blocks) {
		uint32_t max = nr_zones - done < ZONES_AT_A_TIME ? nr_zones - done : ZONES_AT_A_TIME;

		ret = zonda_report_zones(acquire_handle(target), lba, 0, report, max);
		release_handle(target);
		if (ret <= 0)
			break;
		for (i = 0; i < ret; i++)
			convert(&report[i], g, &zones[done++]);
		lba = report[ret - 1].start + g->zone_size_blocks;
	}
	free(report);
	return ret < 0 ? complain(f, ret) : (int)done;
}

static int each_zone(struct thread_data *td, struct fio_file *f, uint64_t offset, uint64_t length, uint32_t opcode)
{
	struct target *target = target_of(td, f);
	const zonda_geometry *g;
	uint64_t lba, end;
	int ret = 0;

	if (target == NULL)
		return -errno;
	g = &target->control->geometry;
	end = (offset + length) / g->block_size_bytes;
	for (lba = offset / g->block_size_bytes; lba < end && ret == 0; lba += g->zone_size_blocks) {
		ret = zonda_manage_zone(acquire_handle(target), opcode, lba);
		release_handle(target);
	}
	return ret < 0 ? complain(f, ret) : 0;
}

static int zonda_reset_wp(struct thread_data *td, struct fio_file *f, uint64_t offset, uint64_t length)
{
	return each_zone(td, f, offset, length, ZONDA_ZONE_RESET);
}

#ifdef FIO_HAS_FINISH_ZONE
static int zonda_finish_zone(struct thread_data *td, struct fio_file *f, uint64_t offset, uint64_t length)
{
	return each_zone(td, f, offset, length, ZONDA_ZONE_FINISH);
}
#endif

static int zonda_get_max_open_zones(struct thread_data *td, struct fio_file *f, unsigned int *max)
{
	struct target *target = target_of(td, f);

	if (target == NULL)
		return -errno;
	*max = target->control->geometry.max_open_zones;
	return 0;
}

#ifdef FIO_HAS_MAX_ACTIVE_ZONES
static int zonda_get_max_active_zones(struct thread_data *td, struct fio_file *f, unsigned int *max)
{
	struct target *target = target_of(td, f);

	if (target == NULL)
		return -errno;
	*max = target->control->geometry.max_active_zones;
	return 0;
}
#endif

/* ---- Data --------------------------------------------------------------------------------------------------------------- */

/* Processes the completion of a part. */
static void part_ended(struct job *job, struct target *target, const zonda_result *result)
{
	struct part *part = result->user_data;
	struct io_u *io_u = part->io_u;
	struct work *work = io_u->engine_data;
	int error = result->error;

	if (!error && part->is_append && result->lba != part->append_lba)
		error = EILSEQ;
	if (error && !io_u->error) {
		io_u->error = (unsigned int)error;
		if (!job->has_complained) {
			job->has_complained = true;
			log_err("zonda: %s: %s at offset %llu: %s\n", io_u->file->file_name, io_ddir_name(io_u->ddir),
				io_u->offset,
				result->error ? zonda_status_text(result->status) : "an append was written to an unexpected LBA");
		}
	}
	target->in_flight--;
	if (--work->in_flight == 0) {
		job->ready[(job->ready_head + job->ready_count) % job->ready_size] = io_u;
		job->ready_count++;
	}
}

/* Waits for completions of one namespace. */
static int gather(struct job *job, struct target *target, unsigned int min, int64_t timeout_ns)
{
	int i, ret;

	ret = zonda_wait(target->ns, min, job->ready_size, timeout_ns, job->results);
	target->unsent = false;
	for (i = 0; i < ret; i++)
		part_ended(job, target, &job->results[i]);
	return ret < 0 ? complain(job->td->files[0], ret) : ret;
}

static int submit_part(struct job *job, struct target *target, const zonda_command *command)
{
	int ret;

	while ((ret = zonda_submit(target->ns, command)) == -EAGAIN && target->in_flight) {
		ret = gather(job, target, 1, -1);
		if (ret < 0)
			return ret;
	}
	if (ret == 0) {
		target->in_flight++;
		target->unsent = true;
	}
	return ret;
}

/* Submits the command, or commands, of an io_u. */
static int submit(struct job *job, struct target *target, struct io_u *io_u)
{
	const struct options *o = job->td->eo;
	const zonda_geometry *g = &target->control->geometry;
	struct work *work = io_u->engine_data;
	uint64_t lba = io_u->offset / g->block_size_bytes;
	uint64_t blocks = io_u->xfer_buflen / g->block_size_bytes;
	uint64_t zone = lba / g->zone_size_blocks;
	uint64_t most = g->max_transfer_blocks;
	zonda_command command = { 0 };
	struct part *part = work->parts;
	char *data = io_u->xfer_buf;
	int ret;

	work->in_flight = 0;
	if (ddir_sync(io_u->ddir)) {
		command.opcode = ZONDA_FLUSH;
		command.user_data = part;
		*part = (struct part){ .io_u = io_u };
		ret = submit_part(job, target, &command);
		work->in_flight = ret == 0;
		return ret;
	}
	if (io_u->offset % g->block_size_bytes || io_u->xfer_buflen % g->block_size_bytes || blocks == 0) {
		log_err("zonda: block size %u: %llu bytes at offset %llu are not aligned; check blocksize and blockalign\n",
			g->block_size_bytes, io_u->xfer_buflen, io_u->offset);
		return -EINVAL;
	}
	command.opcode = io_u->ddir == DDIR_READ ? ZONDA_READ : ZONDA_WRITE;
	if (o->append && io_u->ddir == DDIR_WRITE && zone >= g->conventional_zone_count) {
		command.opcode = ZONDA_APPEND;
		most = g->max_append_blocks;
	}
	/* Set before any part can complete. */
	work->in_flight = (unsigned int)((blocks + most - 1) / most);
	for (; blocks; part++) {
		command.blocks = blocks < most ? blocks : most;
		command.lba = command.opcode == ZONDA_APPEND ? zone * g->zone_size_blocks : lba;
		command.data = data;
		command.data_bytes = command.blocks * g->block_size_bytes;
		command.user_data = part;
		*part = (struct part){ io_u, lba, command.opcode == ZONDA_APPEND };
		ret = submit_part(job, target, &command);
		if (ret < 0) {
			/* Parts in flight complete later; the io_u has failed. */
			unsigned int missing = (unsigned int)((blocks + most - 1) / most);

			work->in_flight -= missing;
			if (work->in_flight == 0)
				return ret;
			io_u->error = (unsigned int)-ret;
			return 0;
		}
		blocks -= command.blocks;
		lba += command.blocks;
		data += command.data_bytes;
	}
	return 0;
}

/* fio's helper resets zones; where there is no zone to reset, blocks are deallocated. */
static int trim(struct thread_data *td, struct target *target, struct io_u *io_u)
{
	uint64_t block = target->control->geometry.block_size_bytes;
	int ret;

	if (td->o.zone_mode == ZONE_MODE_ZBD) {
		ret = zbd_do_io_u_trim(td, io_u);
		if (ret)
			return ret == io_u_completed ? 0 : ret;
	}
	if (io_u->offset % block || io_u->xfer_buflen % block)
		return -EINVAL;
	return zonda_deallocate(target->ns, io_u->offset / block, io_u->xfer_buflen / block);
}

static enum fio_q_status zonda_queue(struct thread_data *td, struct io_u *io_u)
{
	struct job *job = td->io_ops_data;
	struct target *target = target_of(td, io_u->file);
	int ret;

	fio_ro_check(td, io_u);
	if (target == NULL) {
		io_u->error = (unsigned int)errno;
		return FIO_Q_COMPLETED;
	}
	switch (io_u->ddir) {
	case DDIR_TRIM:
		ret = trim(td, target, io_u);
		if (ret < 0)
			io_u->error = (unsigned int)-ret;
		return FIO_Q_COMPLETED;
	case DDIR_READ:
	case DDIR_WRITE:
	case DDIR_SYNC:
	case DDIR_DATASYNC:
		ret = submit(job, target, io_u);
		break;
	case DDIR_SYNC_FILE_RANGE:
	case DDIR_WAIT:
	default:
		ret = -EOPNOTSUPP;
	}
	if (ret == 0)
		return FIO_Q_QUEUED;
	if (ret == -EAGAIN && job->ready_count)
		return FIO_Q_BUSY;
	io_u->error = (unsigned int)-ret;
	return FIO_Q_COMPLETED;
}

/* At iodepth 1 fio calls getevents next, which sends the command. */
static int zonda_commit(struct thread_data *td)
{
	struct job *job = td->io_ops_data;
	unsigned int i;
	int ret = 0;

	io_u_mark_submit(td, td->io_u_queued);
	if (td->o.iodepth == 1)
		return 0;
	for (i = 0; i < job->nr_targets && ret == 0; i++) {
		struct target *target = &job->targets[i];

		if (target->unsent) {
			target->unsent = false;
			ret = zonda_kick(target->ns);
		}
	}
	return ret;
}

static int64_t now_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec * NS_PER_S + now.tv_nsec;
}

static int zonda_getevents(struct thread_data *td, unsigned int min, unsigned int max, const struct timespec *t)
{
	struct job *job = td->io_ops_data;
	int64_t limit = t ? t->tv_sec * NS_PER_S + t->tv_nsec : -1;
	int64_t end = t ? now_ns() + limit : 0;
	unsigned int count = 0, i;
	bool is_first = true;
	int ret;

	while (is_first || job->ready_count < min) {
		unsigned int waiting = 0;

		for (i = 0; i < job->nr_targets; i++)
			waiting += job->targets[i].in_flight > 0;
		if (waiting == 0)
			break;
		for (i = 0; i < job->nr_targets; i++) {
			struct target *target = &job->targets[i];
			bool is_enough = job->ready_count >= min;

			if (target->in_flight == 0)
				continue;
			ret = gather(job, target, is_enough ? 0 : 1,
				     is_enough ? 0 : waiting == 1 ? limit : POLL_SLICE_NS);
			if (ret < 0)
				return ret;
		}
		is_first = false;
		if (t) {
			limit = end - now_ns();
			if (limit <= 0)
				break;
		}
	}
	while (count < max && job->ready_count) {
		job->events[count++] = job->ready[job->ready_head];
		job->ready_head = (job->ready_head + 1) % job->ready_size;
		job->ready_count--;
	}
	return (int)count;
}

static struct io_u *zonda_event(struct thread_data *td, int event)
{
	struct job *job = td->io_ops_data;

	return job->events[event];
}

/* Namespaces are opened with the job, which sets their sizes; there is no cache to invalidate. */
static int zonda_noop(struct thread_data *td, struct fio_file *f)
{
	return 0;
}

static struct ioengine_ops zonda_engine = {
	.name = "zonda",
	.version = FIO_IOOPS_VERSION,
	.flags = FIO_ASYNCIO_SYNC_TRIM | FIO_DISKLESSIO | FIO_NODISKUTIL | FIO_NOEXTEND,
	.setup = zonda_setup,
	.init = zonda_init,
	.cleanup = zonda_cleanup,
	.io_u_init = zonda_io_u_init,
	.io_u_free = zonda_io_u_free,
	.queue = zonda_queue,
	.commit = zonda_commit,
	.getevents = zonda_getevents,
	.event = zonda_event,
	.open_file = zonda_noop,
	.close_file = zonda_noop,
	.invalidate = zonda_noop,
	.get_file_size = zonda_noop,
	.get_zoned_model = zonda_get_zoned_model,
	.report_zones = zonda_fio_report_zones,
	.reset_wp = zonda_reset_wp,
	.get_max_open_zones = zonda_get_max_open_zones,
#ifdef FIO_HAS_MAX_ACTIVE_ZONES
	.get_max_active_zones = zonda_get_max_active_zones,
#endif
#ifdef FIO_HAS_FINISH_ZONE
	.finish_zone = zonda_finish_zone,
#endif
	.option_struct_size = sizeof(struct options),
	.options = option_table,
};

/* The entry point that fio looks up. */
void get_ioengine(struct ioengine_ops **engine);

void get_ioengine(struct ioengine_ops **engine)
{
	*engine = &zonda_engine;
}
