"""What Python 2.7.18 with numpy 1.16 writes for ``{"conv2d_0.w_0": {np.float64(0.1): np.float64(0.25)}}``,
alone and in a Status.

The number is the pickle protocol. ``Status`` was an old-style class there.
"""

PYTHON2 = {
    "dict 0": (
        b"(dp0\nS'conv2d_0.w_0'\np1\n(dp2\ncnumpy.core.multiarray\nscalar\np"
        b"3\n(cnumpy\ndtype\np4\n(S'f8'\np5\nI0\nI1\ntp6\nRp7\n(I3\nS'<'\np8\nNNNI-"
        b"1\nI-1\nI0\ntp9\nbS'\\x9a\\x99\\x99\\x99\\x99\\x99\\xb9?'\np10\ntp11\nRp12"
        b"\ng3\n(g7\nS'\\x00\\x00\\x00\\x00\\x00\\x00\\xd0?'\np13\ntp14\nRp15\nss."
    ),
    "dict 1": (
        b"}q\x00U\x0cconv2d_0.w_0q\x01}q\x02cnumpy.core.multiarray\nscalar\nq\x03(cnump"
        b"y\ndtype\nq\x04(U\x02f8q\x05K\x00K\x01tq\x06Rq\x07(K\x03U\x01<q\x08NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tq\tbU\x08\x9a\x99\x99\x99"
        b"\x99\x99\xb9?q\ntq\x0bRq\x0ch\x03(h\x07U\x08\x00\x00\x00\x00\x00\x00\xd0?q\rtq\x0eRq\x0fss."
    ),
    "dict 2": (
        b"\x80\x02}q\x00U\x0cconv2d_0.w_0q\x01}q\x02cnumpy.core.multiarray\nscalar\nq\x03cnum"
        b"py\ndtype\nq\x04U\x02f8q\x05K\x00K\x01\x87q\x06Rq\x07(K\x03U\x01<q\x08NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tq\tbU\x08\x9a\x99\x99\x99"
        b"\x99\x99\xb9?q\n\x86q\x0bRq\x0ch\x03h\x07U\x08\x00\x00\x00\x00\x00\x00\xd0?q\r\x86q\x0eRq\x0fss."
    ),
    "status 0": (
        b"(ipaddleslim.dygraph.prune.filter_pruner\nStatus\np0\n(dp1\nS'se"
        b"nsitivies'\np2\n(dp3\nS'conv2d_0.w_0'\np4\n(dp5\ncnumpy.core.multi"
        b"array\nscalar\np6\n(cnumpy\ndtype\np7\n(S'f8'\np8\nI0\nI1\ntp9\nRp10\n(I"
        b"3\nS'<'\np11\nNNNI-1\nI-1\nI0\ntp12\nbS'\\x9a\\x99\\x99\\x99\\x99\\x99\\xb"
        b"9?'\np13\ntp14\nRp15\ng6\n(g10\nS'\\x00\\x00\\x00\\x00\\x00\\x00\\xd0?'\np"
        b"16\ntp17\nRp18\nsssS'is_ckp'\np19\nI01\nsS'accumulates'\np20\n(dp21\n"
        b"sb."
    ),
    "status 1": (
        b"(cpaddleslim.dygraph.prune.filter_pruner\nStatus\nq\x00oq\x01}q\x02(U\x0bs"
        b"ensitiviesq\x03}q\x04U\x0cconv2d_0.w_0q\x05}q\x06cnumpy.core.multiarray\nsca"
        b"lar\nq\x07(cnumpy\ndtype\nq\x08(U\x02f8q\tK\x00K\x01tq\nRq\x0b(K\x03U\x01<q\x0cNNNJ\xff\xff\xff\xffJ\xff\xff\xff\xff"
        b"K\x00tq\rbU\x08\x9a\x99\x99\x99\x99\x99\xb9?q\x0etq\x0fRq\x10h\x07(h\x0bU\x08\x00\x00\x00\x00\x00\x00\xd0?q\x11tq\x12Rq\x13ssU\x06is_ckpq\x14I"
        b"01\nU\x0baccumulatesq\x15}q\x16ub."
    ),
    "status 2": (
        b"\x80\x02(cpaddleslim.dygraph.prune.filter_pruner\nStatus\nq\x00oq\x01}q\x02(U"
        b"\x0bsensitiviesq\x03}q\x04U\x0cconv2d_0.w_0q\x05}q\x06cnumpy.core.multiarray\ns"
        b"calar\nq\x07cnumpy\ndtype\nq\x08U\x02f8q\tK\x00K\x01\x87q\nRq\x0b(K\x03U\x01<q\x0cNNNJ\xff\xff\xff\xffJ\xff\xff\xff\xff"
        b"K\x00tq\rbU\x08\x9a\x99\x99\x99\x99\x99\xb9?q\x0e\x86q\x0fRq\x10h\x07h\x0bU\x08\x00\x00\x00\x00\x00\x00\xd0?q\x11\x86q\x12Rq\x13ssU\x06is_ckpq\x14\x88U"
        b"\x0baccumulatesq\x15}q\x16ub."
    ),
}
