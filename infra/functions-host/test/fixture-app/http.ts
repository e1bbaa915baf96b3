import { existsSync } from "node:fs";
import { setTimeout as delay } from "node:timers/promises";
import { app, type HttpHandler, type HttpRequest } from "@azure/functions";

// HTTP functions of the app that the tests of the Functions host run. Some return their request as JSON, others return a
// response that the platform treats specially.

const echo: HttpHandler = async (request) => ({
  jsonBody: {
    method: request.method,
    url: request.url,
    params: request.params,
    query: Object.fromEntries([...request.query.keys()].map((key) => [key, request.query.getAll(key)])),
    headers: Object.fromEntries(request.headers),
    hasBody: request.body !== null,
    body: Buffer.from(await request.arrayBuffer()).toString("base64"),
  },
});

app.http("echo", {
  route: "echo/{id?}",
  methods: ["GET", "POST", "DELETE"],
  authLevel: "anonymous",
  handler: echo,
});
app.http("catchAll", { route: "files/{*rest}", methods: ["GET"], authLevel: "anonymous", handler: echo });
app.http("readJson", {
  methods: ["POST"],
  authLevel: "anonymous",
  handler: async (request: HttpRequest) => ({ jsonBody: await request.json() }),
});

/** Handlers by function name. Each function has one response, for GET. */
const fixedResponses: Record<string, HttpHandler> = {
  throws: () => {
    throw new Error("thrown on purpose");
  },
  text: () => "just text" as never,
  nothing: () => undefined as never,
  informational: () => ({ status: 101 }),
  plain: () => ({ body: "text" }),
  noContent: () => ({ status: 204, body: "dropped" }),
  notModified: () => ({ status: 304, body: "dropped" }),
  cookies: () => ({
    cookies: [
      { name: "one", value: "a b;c", httpOnly: true, secure: true, sameSite: "Lax", maxAge: 60 },
      { name: "two", value: "2", path: "/there", sameSite: "None" },
      { name: "three", value: "", expires: new Date(0) },
    ],
  }),
  setCookieHeaders: () => ({
    headers: [
      ["set-cookie", "one=1"],
      ["set-cookie", "two=2"],
    ] as never,
  }),
  stream: () => ({ body: streamOf("first ", "second") as never }),
  brokenStream: () => ({ body: streamOf("first ", new Error("broken on purpose")) as never }),
};
for (const [name, handler] of Object.entries(fixedResponses)) {
  app.http(name, { methods: ["GET"], authLevel: "anonymous", handler });
}

/** Responds after `ms` milliseconds, or when the file `until` exists. Both are query parameters. */
app.http("slow", {
  methods: ["GET"],
  authLevel: "anonymous",
  handler: async (request) => {
    await delay(Number(request.query.get("ms")));
    const gateFile = request.query.get("until");
    while (gateFile !== null && !existsSync(gateFile)) await delay(10);
    return { body: "slow" };
  },
});
app.http("guarded", { methods: ["GET"], authLevel: "function", handler: echo });
app.http("switchedOff", { methods: ["GET"], authLevel: "anonymous", handler: echo });
app.http("reservedRoute", { route: "admin/mine", methods: ["GET"], authLevel: "anonymous", handler: echo });
app.http("lazy", {
  methods: ["GET"],
  authLevel: "anonymous",
  handler: async () => ({ body: (await import("./chunks/lazy.ts")).text }),
});

function streamOf(...pieces: (string | Error)[]): ReadableStream {
  return new ReadableStream({
    pull(controller) {
      const piece = pieces.shift();
      if (piece === undefined) controller.close();
      else if (piece instanceof Error) controller.error(piece);
      else controller.enqueue(new TextEncoder().encode(piece));
    },
  });
}
