// A limit from Go, through any Redis client: go mod init throttle && go get github.com/redis/go-redis/v9 && go run throttle.go
package main

import (
	"context"
	"fmt"
	"os"

	"github.com/redis/go-redis/v9"
)

func main() {
	port := os.Getenv("PORT")
	if port == "" {
		port = "6380"
	}
	weir := redis.NewClient(&redis.Options{Addr: "127.0.0.1:" + port})
	for number := 1; number <= 4; number++ {
		// At most 2 more at once than the pace of 30 an hour.
		answer, err := weir.Do(context.Background(), "CL.THROTTLE", "go:user42", 2, 30, 3600).Int64Slice()
		if err != nil {
			panic(err)
		}
		if answer[0] == 1 {
			fmt.Printf("%d: denied, come back in %d s\n", number, answer[3])
		} else {
			fmt.Printf("%d: passes, %d left\n", number, answer[2])
		}
	}
}
