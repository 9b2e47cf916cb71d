/* Offers GETs of random stores at a fixed rate, whatever the server does: PORT RATE SECONDS CONNECTIONS STORES PATH...
 *
 * Request i is due at start + i / RATE. If no connection is free then, it waits, and its latency counts from when it
 * was due: a slow response delays those behind it, as it would delay real clients. Meanwhile each PATH is read on a
 * connection of its own, also RATE times a second if its responses come in time. Prints one line of JSON; "past" is
 * the median of those.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <netinet/tcp.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/epoll.h>
#include <time.h>
#include <unistd.h>

enum { MAX_CONNECTIONS = 1024, BUFFER = 8192, DRAIN_SECONDS = 5, MAX_BESIDE = 1 << 24 };

struct connection {
    const char *path;
    int fd, length, waiting;
    int64_t due;
    char data[BUFFER];
};

static struct connection all[MAX_CONNECTIONS];
static int idle[MAX_CONNECTIONS], idle_count;
static uint64_t state = 88172645463325252ULL;

static void fail(const char *what)
{
    perror(what);
    exit(1);
}

static int64_t now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1000000000LL + t.tv_nsec;
}

static uint64_t random_number(void)
{
    state ^= state << 13;
    state ^= state >> 7;
    return state ^= state << 17;
}

static void send_request(struct connection *connection, int port, int stores, int64_t due)
{
    char text[512], path[64];
    snprintf(path, sizeof path, "/api/stores/%d", (int)(random_number() % (uint64_t)stores) + 1);
    int size = snprintf(text, sizeof text,
                        "GET %s HTTP/1.1\r\nHost: 127.0.0.1:%d\r\nUser-Agent: bench/1.0\r\n"
                        "Accept: application/json\r\nAccept-Encoding: gzip, deflate\r\n\r\n",
                        connection->path ? connection->path : path, port);
    connection->due = due;
    connection->length = connection->waiting = 0;
    if (write(connection->fd, text, (size_t)size) != size)
        fail("write");
}

/* Return the status, 200 or for a path 503 too, if the response is complete; 0 if more has to come. */
static int receive(struct connection *connection)
{
    ssize_t size = read(connection->fd, connection->data + connection->length, (size_t)(BUFFER - 1 - connection->length));
    if (size <= 0)
        fail("read");
    connection->length += (int)size;
    connection->data[connection->length] = 0;
    char *end = strstr(connection->data, "\r\n\r\n");
    if (!end)
        return 0;
    char *field = strcasestr(connection->data, "\r\ncontent-length:");
    int status = atoi(connection->data + strlen("HTTP/1.1 "));
    if ((status != 200 && !(connection->path && status == 503)) || !field) {
        fprintf(stderr, "not a 200 with a length\n");
        exit(1);
    }
    return connection->length >= end + 4 - connection->data + atoi(field + 17) ? status : 0;
}

static int by_value(const void *a, const void *b)
{
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return (x > y) - (x < y);
}

int main(int count, char **words)
{
    if (count < 6)
        return 2;
    int port = atoi(words[1]), connections = atoi(words[4]), stores = atoi(words[5]);
    double rate = atof(words[2]);
    int64_t total = (int64_t)(rate * atof(words[3])), sent = 0, done = 0, beside = 0, late = 0;
    uint32_t *latencies = calloc((size_t)total + 1, sizeof *latencies), *others = calloc(MAX_BESIDE, sizeof *others);
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    inet_pton(AF_INET, "127.0.0.1", &address.sin_addr);
    int poll = epoll_create1(0);
    int paths = count - 6;
    if (connections + paths > MAX_CONNECTIONS || !latencies || !others || total < 1)
        return 2;
    for (int i = 0; i < connections + paths; i++) {
        all[i].fd = socket(AF_INET, SOCK_STREAM, 0);
        if (connect(all[i].fd, (struct sockaddr *)&address, sizeof address))
            fail("connect");
        setsockopt(all[i].fd, IPPROTO_TCP, TCP_NODELAY, &(int){1}, sizeof(int));
        struct epoll_event event = {.events = EPOLLIN, .data.u32 = (uint32_t)i};
        epoll_ctl(poll, EPOLL_CTL_ADD, all[i].fd, &event);
        if (i < connections)
            idle[idle_count++] = i;
        else
            all[i] = (struct connection){.path = words[6 + i - connections], .fd = all[i].fd, .waiting = 1};
    }
    int64_t start = now() + 1000000, last = start, limit = start + (int64_t)((atof(words[3]) + DRAIN_SECONDS) * 1e9);
    while (done < total && now() < limit) {
        int64_t due;
        while (sent < total && idle_count && (due = start + (int64_t)(sent * 1e9 / rate)) <= now()) {
            send_request(&all[idle[--idle_count]], port, stores, due);
            sent++;
        }
        for (int i = connections; i < connections + paths; i++)
            if (all[i].waiting && now() >= all[i].due + (int64_t)(1e9 / rate))
                send_request(&all[i], port, stores, now());
        struct epoll_event events[256];
        int ready = epoll_wait(poll, events, 256, 0);
        for (int i = 0; i < ready; i++) {
            struct connection *connection = &all[events[i].data.u32];
            int status = receive(connection);
            if (!status)
                continue;
            if (connection->path) {
                if (beside < MAX_BESIDE)
                    others[beside++] = (uint32_t)((now() - connection->due) / 1000);
                late += status == 503;
                connection->waiting = 1;
                continue;
            }
            last = now();
            latencies[done++] = (uint32_t)((last - connection->due) / 1000);
            idle[idle_count++] = (int)events[i].data.u32;
        }
    }
    qsort(latencies, (size_t)done, sizeof *latencies, by_value);
    qsort(others, (size_t)beside, sizeof *others, by_value);
    // All responses, so that processor time is shared among all of them.
    printf("{\"requests\":%lld,\"errors\":%lld,\"seconds\":%.6f,\"p50\":%.4f,\"p99\":%.4f,\"p999\":%.4f,"
           "\"past\":%.4f,\"late\":%.4f}\n",
           (long long)(done + beside), (long long)(total - done), (double)(last - start) / 1e9, latencies[done / 2] / 1e3,
           latencies[(int64_t)((double)done * 0.99)] / 1e3, latencies[(int64_t)((double)done * 0.999)] / 1e3,
           others[beside / 2] / 1e3, beside ? (double)late / (double)beside : 0.0);
    return 0;
}
