import { ADMIN, Service } from "../../../test/support/service.ts";
import { TEST_APP } from "../../../test/support/test-app.ts";
import { caseRunner, type Part } from "../part.ts";
import { type LoadedFunction, WorkerHost } from "../worker-host.ts";

// The built app in Microsoft's worker for Node.js, compared with the local functions host on the same storage.

const VARIABLE = "FUNCTIONS_NODE_WORKER";

export const part: Part = {
  name: "node-worker",
  description: "Microsoft's Node.js worker loads the app and answers as the local functions host",
  programs: ["nodeWorker"],
  needs: [],
  variable: VARIABLE,
  limits: [
    `\`${VARIABLE}\` is the folder of a built checkout of Azure/azure-functions-nodejs-worker, with its node_modules. \`FUNCTIONS_NODE\` is the Node.js program that runs it (default: \`node\` of the command). Worker 3.9.1 accepts Node.js up to 22.`,
  ],
  async *run() {
    const runCase = caseRunner("nodeWorker");
    const service = await Service.start({ company: "small" });
    try {
      // Without NODE_OPTIONS of the tests, which are for the local host.
      const { NODE_OPTIONS: _, ...environment } = service.environment;
      const { NODE_OPTIONS = "" } = service.cloud.environment;
      const node = process.env.FUNCTIONS_NODE ?? process.execPath;
      const worker = await WorkerHost.start(process.env[VARIABLE]!, node, TEST_APP, { ...environment, NODE_OPTIONS });
      try {
        /** Returns the functions with a kind of trigger: `http`, `timer` or `queue`. */
        const ofKind = (kind: string) => worker.functions.filter(({ trigger }) => trigger.type === `${kind}Trigger`);
        const local = service.hosts[0]!.functions;
        const nameAndTrigger = ({ name, trigger }: { name: string; trigger: string }) => `${name} ${trigger}`;
        yield await runCase("functions that fail to load", "none", async () => {
          const failed = worker.functions.filter(({ error }) => error !== undefined);
          return failed.map(({ name, error }) => `${name}: ${error}`).join("; ") || "none";
        });
        yield await runCase(
          "functions and triggers are those of the local host",
          // The app has more than 100 functions. Two empty lists would not differ either.
          /^\d{3}, no difference$/,
          async () => {
            const inWorker = worker.functions.map(({ name, trigger }) =>
              nameAndTrigger({ name, trigger: trigger.type }),
            );
            const inLocalHost = local.map(nameAndTrigger);
            const differing = [
              ...inWorker.filter((one) => !inLocalHost.includes(one)),
              ...inLocalHost.filter((one) => !inWorker.includes(one)),
            ];
            return `${inWorker.length}, ${differing.join("; ") || "no difference"}`;
          },
        );

        /**
         * Sends a request to a function of the worker.
         * @returns The status and the body
         */
        const call = async (target: LoadedFunction, method: string, headers: Record<string, string>, body?: string) => {
          const allHeaders = Object.entries({ "x-forwarded-for": "127.0.0.1:5000", ...headers });
          const { value, error } = await worker.invoke(target, {
            http: {
              method,
              url: `${service.url}/${target.trigger.route}`,
              nullableHeaders: Object.fromEntries(allHeaders.map(([name, text]) => [name, { value: text }])),
              nullableQuery: {},
              nullableParams: {},
              ...(body !== undefined && { body: { bytes: Buffer.from(body) } }),
            },
          });
          if (error !== undefined) return { status: error, body: "" };
          const { statusCode, body: answer } = value.http;
          return { status: statusCode, body: answer?.string ?? Buffer.from(answer?.bytes ?? "").toString() };
        };
        const reads = ofKind("http").filter(
          ({ trigger: { route = "", methods = [] } }) => methods.includes("GET") && !route.includes("{"),
        );
        /** Compares the status of every GET without parameters with the local host's. */
        const compare = async (headers: Record<string, string>): Promise<string> => {
          const differences: string[] = [];
          for (const read of reads) {
            const path = `/${read.trigger.route}`;
            const localResponse = await fetch(service.url + path, { headers, redirect: "manual" });
            await localResponse.arrayBuffer();
            const { status } = await call(read, "GET", headers);
            if (String(status) !== String(localResponse.status))
              differences.push(`${path}: ${status}, not ${localResponse.status}`);
          }
          return `${reads.length} paths, ${differences.join("; ") || "no difference"}`;
        };
        yield await runCase("every GET without a token: same status", /^\d\d+ paths, no difference$/, () =>
          compare({}),
        );
        yield await runCase("every GET as administrator: same status", /^\d\d+ paths, no difference$/, async () =>
          compare({ authorization: `Bearer ${await service.signIn(ADMIN)}` }),
        );
        yield await runCase("sign-in by POST", "200 with a token", async () => {
          const signIn = ofKind("http").find(({ trigger }) => trigger.route === "auth/login")!;
          const headers = { "content-type": "application/json" };
          const { status, body } = await call(signIn, "POST", headers, JSON.stringify(ADMIN));
          return `${status} ${JSON.parse(body).access_token ? "with a token" : body}`;
        });
        yield await runCase("timers: first run", "all succeed", async () => {
          const failed: string[] = [];
          for (const timer of ofKind("timer")) {
            const past = { json: JSON.stringify({ Schedule: {}, ScheduleStatus: null, IsPastDue: false }) };
            const { error } = await worker.invoke(timer, past);
            if (error !== undefined) failed.push(`${timer.name}: ${error}`);
          }
          return failed.join("; ") || "all succeed";
        });
        yield await runCase(
          "messages that no queue expects: the worker continues",
          /^\d+ rejected, then 200$/,
          async () => {
            const results = [];
            for (const queue of ofKind("queue"))
              results.push(await worker.invoke(queue, { json: JSON.stringify({ nonsense: 1 }) }));
            const health = ofKind("http").find(({ trigger }) => trigger.route === "health")!;
            const { status } = await call(health, "GET", {});
            return `${results.filter(({ error }) => error !== undefined).length} rejected, then ${status}`;
          },
        );
      } finally {
        worker.stop();
      }
    } finally {
      await service.stop();
    }
  },
};
