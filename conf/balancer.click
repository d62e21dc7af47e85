// An IPv4 router whose right side has servers that share a service. A client's connection goes to one of them and stays
// there while others are added, drained and removed; all else is routed as conf/router.click does it.
//   artery run conf/balancer.click --device eth0=veth1 --device eth1=veth2 -u /run/artery.sock
//   artery handler -u /run/artery.sock balancer.add_member 'web5 10.0.2.15'
define($LEFT eth0, $LEFT_IP 10.0.1.1, $LEFT_NET 10.0.1.0/24, $LEFT_BCAST 10.0.1.255);
define($RIGHT eth1, $RIGHT_IP 10.0.2.1, $RIGHT_NET 10.0.2.0/24, $RIGHT_BCAST 10.0.2.255);

// What clients connect to, and who serves it.
define($SERVICE 192.0.2.1, $PORT 80, $WEB1 10.0.2.11, $WEB2 10.0.2.12, $WEB3 10.0.2.13, $WEB4 10.0.2.14);

// How a new connection's server is chosen, and whether it is remembered.
define($METHOD maglev, $STATE true);

// How packets get to servers. As they are (FORWARD direct): every server has the service's address too, on its
// loopback and without answering ARP for it. With the server's address and port in the place of the service's (FORWARD
// nat): answers come back this way. In a tunnel (TUNNEL 1, MTU 1480): servers may be anywhere, and unpack IP in IP.
define($FORWARD direct, $TUNNEL 0, $MTU 1500);

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

// What is done to every packet that leaves. Input: IP packets. Output 0: ready to be sent. Output 1: ICMP errors about
// those that can't be.
elementclass Leave { $ip, $mtu |
    input -> DropBroadcasts
        -> options :: IPGWOptions($ip)
        -> FixIPSrc($ip)
        -> ttl :: DecIPTTL
        -> size :: IPFragmenter($mtu)
        -> [0] output;

    options[1] -> ICMPError($ip, parameterproblem) -> [1] output;
    ttl[1] -> ICMPError($ip, timeexceeded) -> [1] output;
    size[1] -> ICMPError($ip, unreachable, needfrag, PMTU $mtu) -> [1] output;
}

left :: Side($LEFT, $LEFT_IP);
right :: Side($RIGHT, $RIGHT_IP);

balancer :: FlowBalancer(SERVICE $SERVICE:$PORT tcp,
    MEMBER web1 $WEB1, MEMBER web2 $WEB2, MEMBER web3 $WEB3, MEMBER web4 $WEB4,
    METHOD $METHOD, STATE $STATE, FORWARD $FORWARD);

// 0: the router itself. 1: left. 2: right. 3: nowhere.
routes :: LinearIPLookup($LEFT_IP/32 0, $RIGHT_IP/32 0, $LEFT_BCAST/32 0, $RIGHT_BCAST/32 0, $SERVICE/32 0,
    $LEFT_NET 1, $RIGHT_NET 2, 0.0.0.0/0 3);

// What clients send for the service goes to servers, what servers answer to clients, and all else by the table.
left -> [0] balancer;
right -> [1] balancer;
balancer[0] -> to_server :: Leave($LEFT_IP, $MTU) -> way :: StaticSwitch($TUNNEL);
way[0] -> right;
way[1] -> IPEncap(ipip, $RIGHT_IP, DST_ANNO) -> right;
balancer[1] -> routes;
balancer[2] -> routes;

// Nobody serves on other ports of the service's address, nor on this one while there is no server.
routes[0] -> own :: ICMPPingResponder -> routes;
own[1] -> ICMPError($LEFT_IP, unreachable, port) -> routes;
routes[1] -> to_left :: Leave($LEFT_IP, 1500) -> left;
routes[2] -> to_right :: Leave($RIGHT_IP, 1500) -> right;
routes[3] -> ICMPError($LEFT_IP, unreachable, net) -> routes;

// Errors about answers are for the servers that sent them, those about packets to servers come from the service.
to_left[1] -> [0] balancer;
to_server[1] -> [1] balancer;
to_right[1] -> routes;
