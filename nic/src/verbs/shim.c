/*
 * libibverbs for Rust: its calls are partly macros and inline functions over structures that change between releases, so the
 * compiler of its headers should read them. Nothing is decided here. Every function returns 0 or an errno, unless it says otherwise.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <infiniband/verbs.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

struct card {
    struct ibv_context *context;
    struct ibv_pd *domain;
    uint8_t port;
    int gid_index;
    int active_mtu; /* bytes */
};

struct pair {
    struct ibv_qp *qp;
    struct ibv_cq *sent, *received;
};

/* What was done. */
struct done {
    uint64_t work;
    uint32_t status;
    uint32_t immediate;
    uint32_t len;
    uint32_t is_receive;
};

static int find_gid(struct card *card, const uint8_t address[16])
{
    struct ibv_device_attr attr;
    struct ibv_port_attr port;
    struct ibv_gid_entry entry;

    if (ibv_query_device(card->context, &attr))
        return ENODEV;
    for (uint8_t at = 1; at <= attr.phys_port_cnt; at++) {
        if (ibv_query_port(card->context, at, &port))
            continue;
        for (int index = 0; index < port.gid_tbl_len; index++) {
            if (ibv_query_gid_ex(card->context, at, index, &entry, 0))
                continue;
            if (entry.gid_type != IBV_GID_TYPE_ROCE_V2 || memcmp(entry.gid.raw, address, 16))
                continue;
            card->port = at;
            card->gid_index = index;
            card->active_mtu = 128 << port.active_mtu;
            return 0;
        }
    }
    return EADDRNOTAVAIL;
}

void hopwise_card_close(struct card *card)
{
    if (card->domain)
        ibv_dealloc_pd(card->domain);
    if (card->context)
        ibv_close_device(card->context);
    free(card);
}

/* The device that has this address (IPv4 as ::ffff:a.b.c.d) for RoCEv2. */
int hopwise_card_open(const uint8_t address[16], struct card **out, int *mtu)
{
    int count = 0, error = ENODEV;
    struct ibv_device **list = ibv_get_device_list(&count);

    for (int at = 0; at < count; at++) {
        struct card *card = calloc(1, sizeof(*card));

        if (!card)
            return ENOMEM;
        card->context = ibv_open_device(list[at]);
        error = card->context ? find_gid(card, address) : errno;
        if (!error && !(card->domain = ibv_alloc_pd(card->context)))
            error = errno;
        if (!error) {
            *out = card;
            *mtu = card->active_mtu;
            ibv_free_device_list(list);
            return 0;
        }
        hopwise_card_close(card);
    }
    if (list)
        ibv_free_device_list(list);
    return error;
}

int hopwise_register(struct card *card, void *at, size_t len, int for_others, struct ibv_mr **out, uint32_t *lkey, uint32_t *rkey)
{
    int rights = IBV_ACCESS_LOCAL_WRITE;

    if (for_others)
        rights |= IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC;
    *out = ibv_reg_mr(card->domain, at, len, rights);
    if (!*out)
        return errno ? errno : EINVAL;
    *lkey = (*out)->lkey;
    *rkey = (*out)->rkey;
    return 0;
}

void hopwise_unregister(struct ibv_mr *region)
{
    ibv_dereg_mr(region);
}

void hopwise_pair_close(struct pair *pair)
{
    if (pair->qp)
        ibv_destroy_qp(pair->qp);
    if (pair->sent)
        ibv_destroy_cq(pair->sent);
    if (pair->received)
        ibv_destroy_cq(pair->received);
    free(pair);
}

int hopwise_pair_make(struct card *card, int reliable, uint32_t depth, uint32_t receives, struct pair **out, uint32_t *number)
{
    struct pair *pair = calloc(1, sizeof(*pair));
    struct ibv_qp_init_attr init = {.qp_type = reliable ? IBV_QPT_RC : IBV_QPT_UC};
    struct ibv_qp_attr attr = {.qp_state = IBV_QPS_INIT, .qp_access_flags = IBV_ACCESS_REMOTE_WRITE};
    int mask = IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS, error;

    if (!pair)
        return ENOMEM;
    pair->sent = ibv_create_cq(card->context, depth + 1, NULL, NULL, 0);
    pair->received = ibv_create_cq(card->context, receives + 1, NULL, NULL, 0);
    init.send_cq = pair->sent;
    init.recv_cq = pair->received;
    init.cap = (struct ibv_qp_cap){.max_send_wr = depth, .max_recv_wr = receives ? receives : 1, .max_send_sge = 1, .max_recv_sge = 1};
    if (pair->sent && pair->received)
        pair->qp = ibv_create_qp(card->domain, &init);
    if (!pair->qp) {
        error = errno ? errno : EINVAL;
        hopwise_pair_close(pair);
        return error;
    }
    attr.port_num = card->port;
    if (reliable)
        attr.qp_access_flags |= IBV_ACCESS_REMOTE_ATOMIC;
    error = ibv_modify_qp(pair->qp, &attr, mask);
    if (error) {
        hopwise_pair_close(pair);
        return error;
    }
    *number = pair->qp->qp_num;
    *out = pair;
    return 0;
}

static enum ibv_mtu mtu_code(uint32_t bytes)
{
    return bytes >= 4096 ? IBV_MTU_4096 : bytes >= 2048 ? IBV_MTU_2048 : bytes >= 1024 ? IBV_MTU_1024 : bytes >= 512 ? IBV_MTU_512 : IBV_MTU_256;
}

int hopwise_pair_connect(struct card *card, struct pair *pair, const uint8_t peer[16], uint32_t number, uint32_t rq_psn,
                         uint32_t sq_psn, uint32_t mtu)
{
    int reliable = pair->qp->qp_type == IBV_QPT_RC, error;
    int mask = IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN;
    struct ibv_qp_attr attr = {
        .qp_state = IBV_QPS_RTR,
        .path_mtu = mtu_code(mtu),
        .dest_qp_num = number,
        .rq_psn = rq_psn,
        .max_dest_rd_atomic = 4,
        .min_rnr_timer = 12,
        .ah_attr = {.is_global = 1, .port_num = card->port, .grh = {.sgid_index = card->gid_index, .hop_limit = 64}},
    };

    memcpy(attr.ah_attr.grh.dgid.raw, peer, 16);
    if (reliable)
        mask |= IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
    error = ibv_modify_qp(pair->qp, &attr, mask);
    if (error)
        return error;
    attr.qp_state = IBV_QPS_RTS;
    attr.sq_psn = sq_psn;
    attr.timeout = 14;
    attr.retry_cnt = 7;
    attr.rnr_retry = 7;
    attr.max_rd_atomic = 4;
    mask = IBV_QP_STATE | IBV_QP_SQ_PSN;
    if (reliable)
        mask |= IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC;
    return ibv_modify_qp(pair->qp, &attr, mask);
}

/* `with`: 0 a write, 1 a write with immediate, 2 an addition of `value`, whose original lands at `local`. */
int hopwise_pair_post(struct pair *pair, uint64_t work, int with, uint64_t local, uint32_t len, uint32_t lkey, uint64_t remote,
                      uint32_t rkey, uint64_t value, int tell)
{
    struct ibv_sge place = {.addr = local, .length = len, .lkey = lkey};
    struct ibv_send_wr request = {.wr_id = work, .sg_list = &place, .num_sge = len ? 1 : 0}, *bad;

    if (tell)
        request.send_flags = IBV_SEND_SIGNALED;
    if (with == 2) {
        request.opcode = IBV_WR_ATOMIC_FETCH_AND_ADD;
        request.wr.atomic.remote_addr = remote;
        request.wr.atomic.rkey = rkey;
        request.wr.atomic.compare_add = value;
    } else {
        request.opcode = with ? IBV_WR_RDMA_WRITE_WITH_IMM : IBV_WR_RDMA_WRITE;
        request.imm_data = htonl((uint32_t)value);
        request.wr.rdma.remote_addr = remote;
        request.wr.rdma.rkey = rkey;
    }
    return ibv_post_send(pair->qp, &request, &bad);
}

int hopwise_pair_receive(struct pair *pair, uint32_t count)
{
    struct ibv_recv_wr request = {0}, *bad;
    int error = 0;

    while (count-- && !error)
        error = ibv_post_recv(pair->qp, &request, &bad);
    return error;
}

/* At most `most` completions; how many, or a negative errno. */
int hopwise_pair_poll(struct pair *pair, int of_received, struct done *out, int most)
{
    struct ibv_wc done[16];
    int count = ibv_poll_cq(of_received ? pair->received : pair->sent, most < 16 ? most : 16, done);

    for (int at = 0; at < count; at++) {
        out[at].work = done[at].wr_id;
        out[at].status = done[at].status;
        out[at].immediate = done[at].wc_flags & IBV_WC_WITH_IMM ? ntohl(done[at].imm_data) : 0;
        out[at].len = done[at].byte_len;
        out[at].is_receive = of_received;
    }
    return count;
}

const char *hopwise_status_name(uint32_t status)
{
    return ibv_wc_status_str(status);
}
