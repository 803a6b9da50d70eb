/* Lines as tests/run counts them. */
export default async function* reporter(source) {
    for await (const { type, data } of source) {
        if (type === "test:pass" && data.details.type !== "suite") yield `PASS ${data.name}\n`;
        else if (type === "test:fail") yield `FAIL ${data.name}\n${String(data.details.error?.cause?.stack ?? data.details.error)}\n`;
        else if (type === "test:stdout" || type === "test:stderr") yield data.message;
    }
}
