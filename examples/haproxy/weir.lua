-- Asks weir what becomes of a request. If weir cannot be reached, the request passes.
core.register_action("weir", { "http-req" }, function(txn)
    local answer = core.httpclient():get({
        url = "http://127.0.0.1:8082/v1/auth",
        timeout = 100,
        headers = {
            ["x-forwarded-method"] = { txn.f:method() },
            ["x-forwarded-uri"] = { txn.f:pathq() },
            ["x-forwarded-host"] = { txn.sf:req_hdr("host") },
            ["x-forwarded-for"] = { tostring(txn.f:src()) },
        },
    })
    txn:set_var("txn.weir_status", answer and answer.status or 0)
    local retry = answer and answer.headers and answer.headers["retry-after"]
    txn:set_var("txn.weir_retry_after", retry and (retry[0] or retry[1]) or "1")
end, 0)
