/*
 * A RoCEv2 peer inside the guest: the kernel's own queue pairs and memory, driven by lines on standard input, so that the test
 * on the other side decides what happens. Each command is answered by one line; its first word is "ok" or "failed".
 *
 *   gids                             -> ok INDEX=ADDRESS ...
 *   qp rc|uc                         -> ok INDEX NUMBER
 *   connect INDEX PEER RQ_PSN SQ_PSN MTU IP -> ok            (to ready-to-send; IP 4 or 6: over which)
 *   receive INDEX COUNT              -> ok                   (receive buffers of 64 bytes)
 *   fill OFFSET LENGTH BYTE          -> ok
 *   dump OFFSET LENGTH               -> ok HEX
 *   write INDEX ADDRESS KEY LENGTH   -> ok STATUS            (from the start of the memory)
 *   write-imm INDEX ADDRESS KEY LENGTH VALUE -> ok STATUS
 *   add INDEX ADDRESS KEY DELTA      -> ok STATUS ORIGINAL
 *   send INDEX LENGTH                -> ok STATUS
 *   poll                             -> ok [QP:STATUS:OPCODE:IMMEDIATE:LENGTH ...]  (what was received)
 *   state INDEX                      -> ok STATE RQ_PSN
 *   quit
 */
#include <arpa/inet.h>
#include <infiniband/verbs.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MEMORY (1 << 20)
#define BUFFERS (MEMORY - 65536) /* where received messages go */
#define MAX_PAIRS 64

static struct ibv_context *device;
static struct ibv_pd *domain;
static struct ibv_mr *region;
static uint8_t *memory;
static struct ibv_cq *sent, *received;
static struct ibv_qp *pairs[MAX_PAIRS];
static int pair_count;

static struct ibv_qp *pair(int at) { return at >= 0 && at < pair_count ? pairs[at] : NULL; }

static int gid_index(int version)
{
    union ibv_gid gid;
    static const uint8_t mapped[12] = { [10] = 0xff, [11] = 0xff };

    for (int at = 0; at < 16 && !ibv_query_gid(device, 1, at, &gid); at++) {
        int is_4 = !memcmp(gid.raw, mapped, 12);

        if ((version == 4 && is_4) || (version == 6 && gid.raw[0] == 0xfd))
            return at;
    }
    return -1;
}

static void gids(void)
{
    union ibv_gid gid;
    char text[64];

    printf("ok");
    for (int at = 0; at < 16 && !ibv_query_gid(device, 1, at, &gid); at++)
        if (gid.global.interface_id || gid.global.subnet_prefix)
            printf(" %d=%s", at, inet_ntop(AF_INET6, &gid, text, sizeof(text)));
    printf("\n");
}

static void make(const char *type)
{
    int rc = !strcmp(type, "rc");
    struct ibv_qp_init_attr init = {
        .send_cq = sent,
        .recv_cq = received,
        .cap = { .max_send_wr = 16, .max_recv_wr = 64, .max_send_sge = 1, .max_recv_sge = 1 },
        .qp_type = rc ? IBV_QPT_RC : IBV_QPT_UC,
    };
    struct ibv_qp_attr attr = { .qp_state = IBV_QPS_INIT, .port_num = 1 };
    struct ibv_qp *qp;

    attr.qp_access_flags = IBV_ACCESS_REMOTE_WRITE | (rc ? IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC : 0);
    qp = pair_count < MAX_PAIRS ? ibv_create_qp(domain, &init) : NULL;
    if (!qp || ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS)) {
        printf("failed\n");
        return;
    }
    pairs[pair_count] = qp;
    printf("ok %d %u\n", pair_count++, qp->qp_num);
}

static int connect_pair(struct ibv_qp *qp, unsigned peer, unsigned rq_psn, unsigned sq_psn, unsigned mtu, int version)
{
    int rc = qp->qp_type == IBV_QPT_RC, index = gid_index(version);
    struct ibv_qp_attr attr = {
        .qp_state = IBV_QPS_RTR,
        .path_mtu = mtu == 256    ? IBV_MTU_256
                    : mtu == 512  ? IBV_MTU_512
                    : mtu == 1024 ? IBV_MTU_1024
                                  : IBV_MTU_2048,
        .dest_qp_num = peer,
        .rq_psn = rq_psn,
        .max_dest_rd_atomic = 4,
        .min_rnr_timer = 12,
        .ah_attr = { .is_global = 1, .port_num = 1, .grh = { .sgid_index = index, .hop_limit = 64 } },
    };
    uint8_t *gid = attr.ah_attr.grh.dgid.raw;
    int mask = IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN;

    if (version == 4) {
        gid[10] = gid[11] = 0xff;
        inet_pton(AF_INET, "10.88.0.1", gid + 12);
    } else {
        inet_pton(AF_INET6, "fd88::1", gid);
    }
    if (ibv_modify_qp(qp, &attr, mask | (rc ? IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER : 0)))
        return -1;
    attr.qp_state = IBV_QPS_RTS;
    attr.sq_psn = sq_psn;
    attr.timeout = 18;
    attr.retry_cnt = 7;
    attr.rnr_retry = 7;
    attr.max_rd_atomic = 4;
    mask = IBV_QP_STATE | IBV_QP_SQ_PSN;
    if (rc)
        mask |= IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC;
    return ibv_modify_qp(qp, &attr, mask);
}

static int receive(struct ibv_qp *qp, int count)
{
    for (int at = 0; at < count; at++) {
        struct ibv_sge place = { (uintptr_t)memory + BUFFERS + at * 64, 64, region->lkey };
        struct ibv_recv_wr work = { .wr_id = at, .sg_list = &place, .num_sge = 1 }, *bad;

        if (ibv_post_recv(qp, &work, &bad))
            return -1;
    }
    return 0;
}

/* Posts, and waits up to 5 s for the completion: its status, or -1. */
static int carry_out(struct ibv_qp *qp, struct ibv_send_wr *work)
{
    struct ibv_send_wr *bad;
    struct ibv_wc done;

    work->send_flags = IBV_SEND_SIGNALED;
    if (ibv_post_send(qp, work, &bad))
        return -1;
    for (int turn = 0; turn < 5000; turn++) {
        if (ibv_poll_cq(sent, 1, &done) > 0)
            return done.status;
        usleep(1000);
    }
    return -1;
}

static void carry(struct ibv_qp *qp, const char *what, const char *rest)
{
    unsigned long long address = 0, delta = 0;
    unsigned key = 0, length = 8, value = 0;
    struct ibv_sge place = { (uintptr_t)memory, 0, region->lkey };
    struct ibv_send_wr work = { .sg_list = &place, .num_sge = 1 };
    int status;

    if (!strcmp(what, "add")) {
        sscanf(rest, "%llx %x %llu", &address, &key, &delta);
        work.opcode = IBV_WR_ATOMIC_FETCH_AND_ADD;
        work.wr.atomic.remote_addr = address;
        work.wr.atomic.rkey = key;
        work.wr.atomic.compare_add = delta;
        place.addr = (uintptr_t)memory + MEMORY - 65536 - 8;
    } else if (!strcmp(what, "send")) {
        sscanf(rest, "%u", &length);
        work.opcode = IBV_WR_SEND;
    } else {
        sscanf(rest, "%llx %x %u %x", &address, &key, &length, &value);
        work.opcode = !strcmp(what, "write") ? IBV_WR_RDMA_WRITE : IBV_WR_RDMA_WRITE_WITH_IMM;
        work.imm_data = htonl(value);
        work.wr.rdma.remote_addr = address;
        work.wr.rdma.rkey = key;
    }
    place.length = length;
    status = carry_out(qp, &work);
    if (work.opcode == IBV_WR_ATOMIC_FETCH_AND_ADD)
        printf("ok %d %llu\n", status, *(unsigned long long *)(memory + MEMORY - 65536 - 8));
    else
        printf("ok %d\n", status);
}

static void poll_received(void)
{
    struct ibv_wc done;

    printf("ok");
    while (ibv_poll_cq(received, 1, &done) > 0)
        printf(" %u:%d:%d:%x:%u", done.qp_num, done.status, done.opcode,
               done.wc_flags & IBV_WC_WITH_IMM ? ntohl(done.imm_data) : 0, done.byte_len);
    printf("\n");
}

static void obey(char *line)
{
    char what[32] = "", type[8] = "";
    unsigned a = 0, b = 0, c = 0, d = 0;
    int at = -1, version = 4, used = 0;
    struct ibv_qp_attr attr;
    struct ibv_qp_init_attr init;

    sscanf(line, "%31s %n", what, &used);
    if (!strcmp(what, "gids")) {
        gids();
    } else if (!strcmp(what, "qp")) {
        sscanf(line + used, "%7s", type);
        make(type);
    } else if (!strcmp(what, "connect")) {
        sscanf(line + used, "%d %u %u %u %u %d", &at, &a, &b, &c, &d, &version);
        printf("%s\n", pair(at) && !connect_pair(pair(at), a, b, c, d, version) ? "ok" : "failed");
    } else if (!strcmp(what, "receive")) {
        sscanf(line + used, "%d %u", &at, &a);
        printf("%s\n", pair(at) && !receive(pair(at), a) ? "ok" : "failed");
    } else if (!strcmp(what, "fill") && sscanf(line + used, "%u %u %u", &a, &b, &c) == 3 && a + b <= MEMORY) {
        memset(memory + a, c, b);
        printf("ok\n");
    } else if (!strcmp(what, "dump") && sscanf(line + used, "%u %u", &a, &b) == 2 && a + b <= MEMORY) {
        printf("ok ");
        for (unsigned i = a; i < a + b; i++)
            printf("%02x", memory[i]);
        printf("\n");
    } else if (!strcmp(what, "poll")) {
        poll_received();
    } else if (sscanf(line + used, "%d %n", &at, &version) == 1 && pair(at)) {
        if (!strcmp(what, "state")) {
            if (ibv_query_qp(pair(at), &attr, IBV_QP_STATE | IBV_QP_RQ_PSN, &init))
                printf("failed\n");
            else
                printf("ok %d %u\n", attr.qp_state, attr.rq_psn);
        } else {
            carry(pair(at), what, line + used + version);
        }
    } else {
        printf("failed: %s\n", line);
    }
}

int main(void)
{
    struct ibv_device **list = NULL;
    char line[512];
    int count = 0,
        flags = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC;

    setvbuf(stdout, NULL, _IOLBF, 0);
    for (int turn = 0; turn < 100 && !count; turn++, usleep(100000))
        list = ibv_get_device_list(&count);
    device = count ? ibv_open_device(list[0]) : NULL;
    domain = device ? ibv_alloc_pd(device) : NULL;
    if (!domain || posix_memalign((void **)&memory, 4096, MEMORY))
        return puts("failed: no device"), 1;
    memset(memory, 0, MEMORY);
    region = ibv_reg_mr(domain, memory, MEMORY, flags);
    sent = ibv_create_cq(device, 64, NULL, NULL, 0);
    received = ibv_create_cq(device, 512, NULL, NULL, 0);
    if (!region || !sent || !received)
        return puts("failed: no memory region"), 1;
    printf("ready %llx %x %x\n", (unsigned long long)(uintptr_t)memory, region->rkey, MEMORY);
    while (fgets(line, sizeof(line), stdin)) {
        line[strcspn(line, "\r\n")] = 0;
        if (!strcmp(line, "quit"))
            break;
        obey(line);
    }
    return 0;
}
