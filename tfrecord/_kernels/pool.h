/* A persistent thread pool. The caller and the threads share the tasks of a call, so a call never waits for a thread
 * that is busy elsewhere, and a single task costs nothing extra.
 *
 * The threads touch no Python objects and need no GIL. A forked child has none of them, and starts its own on demand.
 */
#ifndef TFRECORD_POOL_H
#define TFRECORD_POOL_H

#include <pthread.h>
#include <signal.h>
#include <stddef.h>
#include <stdint.h>

#define POOL_MOST_THREADS 256
#define POOL_STACK (256 << 10)

typedef struct pool_job {
    struct pool_job *next; /* more jobs with unclaimed tasks */
    void (*task)(void *context, int64_t index);
    void *context;
    int64_t count, taken, done;
} pool_job;

static struct {
    pthread_mutex_t lock; /* protects everything below, and the jobs */
    pthread_cond_t work, finished;
    pool_job *jobs;
    int threads, asleep, has_fork_handler;
} pool = {PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER, PTHREAD_COND_INITIALIZER, NULL, 0, 0, 0};

/* Runs tasks of a job until all are claimed. The lock is held on entry and on return. */
static void pool_share(pool_job *job) {
    while (job->taken < job->count) {
        int64_t index = job->taken++;
        if (job->taken == job->count) {
            pool_job **at = &pool.jobs;
            while (*at != job) at = &(*at)->next;
            *at = job->next;
        }
        pthread_mutex_unlock(&pool.lock);
        job->task(job->context, index);
        pthread_mutex_lock(&pool.lock);
        /* After the last task the job may be gone: it is in the stack frame of the caller, who waits for it. */
        if (++job->done == job->count) {
            pthread_cond_broadcast(&pool.finished);
            return;
        }
    }
}

static void *pool_thread(void *nothing) {
    (void)nothing;
    pthread_mutex_lock(&pool.lock);
    for (;;) {
        if (pool.jobs) {
            pool_share(pool.jobs);
            continue;
        }
        pool.asleep++;
        pthread_cond_wait(&pool.work, &pool.lock);
        pool.asleep--;
    }
    return NULL;
}

static void pool_after_fork(void) {
    pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    pthread_cond_t cond = PTHREAD_COND_INITIALIZER;
    pool.lock = lock;
    pool.work = pool.finished = cond;
    pool.jobs = NULL;
    pool.threads = pool.asleep = 0;
}

/* Start the requested number of threads, or as many as possible. Signals go to the program's own threads. */
static void pool_grow(int64_t wanted) {
    pthread_attr_t attributes;
    sigset_t all, before;
    if (!pool.has_fork_handler) pool.has_fork_handler = pthread_atfork(NULL, NULL, pool_after_fork) == 0;
    if (!pool.has_fork_handler || pthread_attr_init(&attributes)) return;
    pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
    pthread_attr_setstacksize(&attributes, POOL_STACK);
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    while (pool.threads < wanted && pool.threads < POOL_MOST_THREADS) {
        pthread_t thread;
        if (pthread_create(&thread, &attributes, pool_thread, NULL)) break;
        pool.threads++;
    }
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    pthread_attr_destroy(&attributes);
}

/* Runs `task` for each index below `count`, on at most `count` threads including the caller; returns when all are
 * done. */
static void pool_run(void (*task)(void *context, int64_t index), void *context, int64_t count) {
    pool_job job = {NULL, task, context, count, 0, 0};
    if (count < 2) {
        if (count) task(context, 0);
        return;
    }
    pthread_mutex_lock(&pool.lock);
    if (pool.threads < count - 1) pool_grow(count - 1);
    job.next = pool.jobs;
    pool.jobs = &job;
    for (int64_t i = 1; i < count && i <= pool.asleep; i++) pthread_cond_signal(&pool.work);
    pool_share(&job);
    while (job.done < job.count) pthread_cond_wait(&pool.finished, &pool.lock);
    pthread_mutex_unlock(&pool.lock);
}

#endif
