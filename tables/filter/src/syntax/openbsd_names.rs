//! The names that OpenBSD gives to numbers, in the forms of its files in /etc.

pub(super) const SERVICES: &str = "
tcpmux 1/tcp
echo 7/tcp
echo 7/udp
discard 9/tcp sink null
discard 9/udp sink null
systat 11/tcp users
daytime 13/tcp
daytime 13/udp
netstat 15/tcp
qotd 17/tcp quote
msp 18/tcp
msp 18/udp
chargen 19/tcp ttytst source
chargen 19/udp ttytst source
ftp-data 20/tcp
ftp 21/tcp
ssh 22/tcp
telnet 23/tcp
smtp 25/tcp mail
time 37/tcp timserver
time 37/udp timserver
rlp 39/udp resource
whois 43/tcp nicname
tacacs 49/tcp
domain 53/tcp nameserver
domain 53/udp nameserver
bootps 67/tcp
bootps 67/udp
bootpc 68/tcp
bootpc 68/udp
tftp 69/udp
gopher 70/tcp
finger 79/tcp
www 80/tcp http
kerberos 88/tcp
kerberos 88/udp
supdup 95/tcp
hostnames 101/tcp hostname
iso-tsap 102/tcp tsap
rtelnet 107/tcp
pop2 109/tcp
pop3 110/tcp
sunrpc 111/tcp portmap
sunrpc 111/udp portmap
auth 113/tcp authentication tap ident
sftp 115/tcp
uucp-path 117/tcp
nntp 119/tcp readnews untp
ntp 123/tcp
ntp 123/udp
netbios-ns 137/tcp
netbios-ns 137/udp
netbios-dgm 138/tcp
netbios-dgm 138/udp
netbios-ssn 139/tcp
netbios-ssn 139/udp
imap 143/tcp imap2
snmp 161/udp
snmptrap 162/udp
xdmcp 177/udp
bgp 179/tcp
irc 194/tcp
smux 199/tcp
qmtp 209/tcp
ldap 389/tcp
https 443/tcp
https 443/udp
microsoft-ds 445/tcp
microsoft-ds 445/udp
smtps 465/tcp
isakmp 500/udp
exec 512/tcp
login 513/tcp
shell 514/tcp cmd
printer 515/tcp spooler
biff 512/udp comsat
who 513/udp whod
syslog 514/udp
talk 517/udp
ntalk 518/udp
route 520/udp router routed
rtsp 554/tcp
dhcpv6-client 546/udp
dhcpv6-server 547/udp
submission 587/tcp
ipp 631/tcp
ipp 631/udp
ldaps 636/tcp
ldp 646/tcp
ldp 646/udp
silc 706/tcp
rsync 873/tcp
ftps-data 989/tcp
ftps 990/tcp
telnets 992/tcp
domain-s 853/tcp
imaps 993/tcp
ircs 994/tcp
pop3s 995/tcp
socks 1080/tcp
openvpn 1194/udp
l2tp 1701/udp
hsrp 1985/udp
pptp 1723/tcp
radius 1812/udp
radacct 1813/udp
nfsd 2049/tcp nfs
nfsd 2049/udp nfs
cvspserver 2401/tcp
mysql 3306/tcp
rdp 3389/tcp
svn 3690/tcp
ipsec-nat-t 4500/udp
iax 4569/udp
vxlan 4789/udp
sip 5060/udp
sip-tls 5061/tcp
xmpp-client 5222/tcp
xmpp-server 5269/tcp
postgresql 5432/tcp
x11 6000/tcp
irc-serv 6667/tcp
spamd 8025/tcp
spamd-cfg 8026/tcp
";

pub(super) const PROTOCOLS: &str = "
ip 0 IP
icmp 1 ICMP
igmp 2 IGMP
ggp 3 GGP
ipencap 4 IP-ENCAP
st2 5 ST2
tcp 6 TCP
cbt 7 CBT
egp 8 EGP
igp 9 IGP
bbn-rcc 10 BBN-RCC-MON
nvp 11 NVP-II
pup 12 PUP
argus 13 ARGUS
emcon 14 EMCON
xnet 15 XNET
chaos 16 CHAOS
udp 17 UDP
mux 18 MUX
dcn 19 DCN-MEAS
hmp 20 HMP
prm 21 PRM
xns-idp 22 XNS-IDP
trunk-1 23 TRUNK-1
trunk-2 24 TRUNK-2
leaf-1 25 LEAF-1
leaf-2 26 LEAF-2
rdp 27 RDP
irtp 28 IRTP
iso-tp4 29 ISO-TP4
netblt 30 NETBLT
mfe-nsp 31 MFE-NSP
merit-inp 32 MERIT-INP
sep 33 SEP
3pc 34 3PC
idpr 35 IDPR
xtp 36 XTP
ddp 37 DDP
idpr-cmtp 38 IDPR-CMTP
tp++ 39 TP++
il 40 IL
ipv6 41 IPv6
sdrp 42 SDRP
ipv6-route 43 IPv6-Route
ipv6-frag 44 IPv6-Frag
idrp 45 IDRP
rsvp 46 RSVP
gre 47 GRE
mhrp 48 MHRP
bna 49 BNA
esp 50 ESP
ah 51 AH
i-nlsp 52 I-NLSP
swipe 53 SWIPE
narp 54 NARP
mobile 55 MOBILE
tlsp 56 TLSP
skip 57 SKIP
ipv6-icmp 58 IPv6-ICMP icmp6
ipv6-nonxt 59 IPv6-NoNxt
ipv6-opts 60 IPv6-Opts
cftp 62 CFTP
sat-expak 64 SAT-EXPAK
kryptolan 65 KRYPTOLAN
rvd 66 RVD
ippc 67 IPPC
sat-mon 69 SAT-MON
visa 70 VISA
ipcv 71 IPCV
cpnx 72 CPNX
cphb 73 CPHB
wsn 74 WSN
pvp 75 PVP
br-sat-mon 76 BR-SAT-MON
sun-nd 77 SUN-ND
wb-mon 78 WB-MON
wb-expak 79 WB-EXPAK
iso-ip 80 ISO-IP
vmtp 81 VMTP
secure-vmtp 82 SECURE-VMTP
vines 83 VINES
ttp 84 TTP
nsfnet-igp 85 NSFNET-IGP
dgp 86 DGP
tcf 87 TCF
eigrp 88 EIGRP
ospf 89 OSPFIGP
sprite-rpc 90 Sprite-RPC
larp 91 LARP
mtp 92 MTP
ax.25 93 AX.25
ipip 94 IPIP
micp 95 MICP
scc-sp 96 SCC-SP
etherip 97 ETHERIP
encap 98 ENCAP
gmtp 100 GMTP
ifmp 101 IFMP
pnni 102 PNNI
pim 103 PIM
aris 104 ARIS
scps 105 SCPS
qnx 106 QNX
a/n 107 A/N
ipcomp 108 IPComp
snp 109 SNP
compaq-peer 110 Compaq-Peer
ipx-in-ip 111 IPX-in-IP
carp 112 CARP vrrp
pgm 113 PGM
l2tp 115 L2TP
ddx 116 DDX
iatp 117 IATP
stp 118 STP
srp 119 SRP
uti 120 UTI
smp 121 SMP
sm 122 SM
ptp 123 PTP
isis 124 ISIS
fire 125 FIRE
crtp 126 CRTP
crudp 127 CRUDP
sscopmce 128 SSCOPMCE
iplt 129 IPLT
sps 130 SPS
pipe 131 PIPE
sctp 132 SCTP
fc 133 FC
udplite 136 UDPLite
mpls 137 MPLS
pfsync 240 PFSYNC
divert 258 DIVERT
";

pub(super) const USERS: &str = "
root:*:0
daemon:*:1
operator:*:2
bin:*:3
build:*:21
sshd:*:27
www:*:67
named:*:70
nobody:*:32767
";

pub(super) const GROUPS: &str = "
wheel:*:0
daemon:*:1
kmem:*:2
sys:*:3
tty:*:4
operator:*:5
bin:*:7
news:*:8
users:*:10
sshd:*:27
www:*:67
nobody:*:32767
";
