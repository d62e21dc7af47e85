// Makes five packets, prints them, counts them, and ends.
//   artery run conf/hello.click
InfiniteSource(DATA "Hello, world!", LIMIT 5, STOP true)
    -> Print(hello)
    -> greetings :: Counter
    -> Discard;

DriverManager(wait_stop, print "$(greetings.count) packets");
