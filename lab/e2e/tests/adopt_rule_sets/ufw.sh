# Has ufw write its rules into the network namespace that this runs in; its settings are copies of the machine's.
set -e
mount --make-rprivate /
mount -t tmpfs none /run
mkdir /run/settings && cp -a /etc/ufw/. /run/settings && mount --bind /run/settings /etc/ufw
cp /etc/default/ufw /run/default && mount --bind /run/default /etc/default/ufw
sed -i '1i *nat\n:POSTROUTING ACCEPT [0:0]\n-A POSTROUTING -s 10.0.1.0/24 -o eth1 -j MASQUERADE\nCOMMIT' /etc/ufw/before.rules
ufw default deny routed
ufw allow in on eth0
ufw limit 22/tcp
ufw route allow in on eth0 out on eth1
ufw logging low
ufw --force enable
