// Routes the packets of a capture into another capture, and ends with the file. What a router may not forward
// ends where that is found, and is counted there by reason; --profile shows the counts.
//   artery run conf/pcap-router.click IN=in.pcap OUT=out.pcap TABLE=routes.txt --profile
// TABLE is a file with more routes, if there is one: a line for each, `PREFIX NEXT-HOP`, with next hops in 10.1/16 to 10.3/16.
define($IN in.pcap, $OUT /dev/null, $TABLE "");

FromDump($IN, STOP true)
    -> arrived :: Counter
    -> kind :: Classifier(12/0800)
    -> Strip(14)
    -> CheckIPHeader
    -> routes :: IPLookup(10.1.0.0/16 0, 10.2.0.0/16 1, 10.3.0.0/16 10.2.0.254 1, TABLE $TABLE);

// What is done on each way out: a hop less to live, a new Ethernet header, a count.
elementclass Leave { $from, $to |
    input -> DecIPTTL -> EtherEncap(0x0800, $from, $to) -> count :: Counter -> output;
}
routes[0] -> to_1 :: Leave(02:00:00:00:01:01, 02:00:00:00:01:02) -> sent :: ToDump($OUT);
routes[1] -> to_2 :: Leave(02:00:00:00:02:01, 02:00:00:00:02:02) -> sent;

DriverManager(wait_stop,
    print "arrived $(arrived.count), forwarded $(to_1/count.count) and $(to_2/count.count)");
