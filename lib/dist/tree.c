#include "dist/tree.h"

#include <stddef.h>

/* Terms of a root: 2^k of n = m·2^k. */
static int64_t root_of(int64_t n)
{
    return n & -n;
}

bool llm_tree_joins(struct llm_tree_node left, struct llm_tree_node right, int64_t n)
{
    const int64_t root = root_of(n), size = right.end - right.first;
    if (left.end != right.first) return false;
    if (left.first == 0 && left.end % root == 0) return size == root;
    return size < root && left.end - left.first == size && left.first % (2 * size) == 0;
}

int64_t llm_tree_nodes(int64_t first, int64_t end, int64_t n, struct llm_tree_node *nodes)
{
    int64_t at = first, count = 0;
    const int64_t root = root_of(n);
    while (at < end) {
        int64_t size = root;
        if (at == 0 && end >= root) size = end / root * root;
        else while (at % size != 0 || at + size > end) size /= 2;
        if (nodes) nodes[count] = (struct llm_tree_node){at, at + size};
        at += size;
        count++;
    }
    return count;
}
