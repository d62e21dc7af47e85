// An IPv4 router between two Ethernets. It answers ARP and ping for its own addresses, forwards everything
// else by a table, and tells senders of packets that expired, were too long, or have nowhere to go.
//   artery run conf/router.click --device eth0=veth1 --device eth1=veth2 --stats
define($LEFT eth0, $LEFT_IP 10.0.1.1, $LEFT_NET 10.0.1.0/24, $LEFT_BCAST 10.0.1.255);
define($RIGHT eth1, $RIGHT_IP 10.0.2.1, $RIGHT_NET 10.0.2.0/24, $RIGHT_BCAST 10.0.2.255);

// One side of the router. Input: IP packets whose destination annotation is their next hop. Output: IP packets
// that arrived, without their Ethernet header, with a sound IP header.
elementclass Side { $device, $ip |
    arrived :: FromDevice($device, SNIFFER false)
        -> kind :: Classifier(12/0806 20/0001, 12/0806 20/0002, 12/0800, -);
    leaving :: Queue(1024) -> ToDevice($device);

    kind[0] -> ARPResponder($ip $device:eth) -> leaving;
    kind[1] -> [1] neighbors :: ARPQuerier($ip, $device:eth) -> leaving;
    kind[2] -> Strip(14) -> CheckIPHeader -> output;
    kind[3] -> Discard;

    input -> neighbors;
}

// What is done to every packet that leaves by a side. Input: IP packets. Output 0: ready to be sent. Output 1:
// ICMP errors about those that can't be.
elementclass Leave { $ip |
    input -> DropBroadcasts
        -> options :: IPGWOptions($ip)
        -> FixIPSrc($ip)
        -> ttl :: DecIPTTL
        -> size :: IPFragmenter(1500)
        -> [0] output;

    options[1] -> ICMPError($ip, parameterproblem) -> [1] output;
    ttl[1] -> ICMPError($ip, timeexceeded) -> [1] output;
    size[1] -> ICMPError($ip, unreachable, needfrag, PMTU 1500) -> [1] output;
}

// 0: the router itself. 1: left. 2: right. 3: nowhere.
routes :: LinearIPLookup($LEFT_IP/32 0, $RIGHT_IP/32 0, $LEFT_BCAST/32 0, $RIGHT_BCAST/32 0,
    $LEFT_NET 1, $RIGHT_NET 2, 0.0.0.0/0 3);

left :: Side($LEFT, $LEFT_IP) -> routes;
right :: Side($RIGHT, $RIGHT_IP) -> routes;

routes[0] -> ICMPPingResponder -> routes;
routes[1] -> to_left :: Leave($LEFT_IP) -> left;
routes[2] -> to_right :: Leave($RIGHT_IP) -> right;
routes[3] -> ICMPError($LEFT_IP, unreachable, net) -> routes;

to_left[1], to_right[1] -> routes;
