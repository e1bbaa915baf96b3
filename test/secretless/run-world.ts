import { appIdOf, keyIdOf, secretValueOf } from "simulated-cloud/company/applications.ts";
import type { Company } from "simulated-cloud/company/company.ts";
import { guidFrom } from "simulated-cloud/vaults/identifiers.ts";
import { usageOf } from "../../shared/applications/credential-usage.ts";
import type { AuditEvent } from "../../shared/audit/event.ts";
import { connectionId, parseDevopsId } from "../../shared/dependencies/devops/ids.ts";
import type { ConsumerKind } from "../../shared/dependencies/edge.ts";
import { createDevops, type Devops } from "../../shared/devops/devops.ts";
import { createGraph } from "../../shared/platform/azure/graph.ts";
import { createIdentity } from "../../shared/platform/azure/identity.ts";
import { createExchangeProof } from "../../shared/platform/azure/sign-in-proof.ts";
import { systemRandomness } from "../../shared/platform/runtime.ts";
import { DAY_MS, MINUTE_MS, SECOND_MS } from "../../shared/platform/time.ts";
import { isOver, type RunRecord } from "../../shared/rotation/secretless-run.ts";
import { applyLimit, verdictOf } from "../../shared/secretless/assess.ts";
import { replacementOf } from "../../shared/secretless/replacement.ts";
import type { SecretConsumer, SecretlessReport, SyncTarget } from "../../shared/secretless/report.ts";
import type { RequestedReplacement } from "../../shared/secretless/run-plan.ts";
import { createSecretlessRuns, type SecretlessRuns } from "../../shared/secretless/runs.ts";
import { startTestCloud } from "../azure/live-cloud.ts";
import { BOSS, World } from "../rotation/world.ts";
import { crashable, SimulatedCrash, type Steps } from "../support/simulated-crash.ts";
import { openStorage } from "../support/storage.ts";

/** Interval of the checks of a waiting run by the timer. */
const TIMER_MS = 10 * MINUTE_MS;
const DEVOPS_ISSUER = "https://vstoken.dev.azure.com";
const AUDIENCE = "api://AzureADTokenExchange";

/** An application with a workload that signs in all the time: first with the secret, and with its own token once that works. */
export interface Workload {
  name: string;
  appId: string;
  keyId: string;
  scenario: string;
  consumers: SecretConsumer[];
  targets: Map<string, SyncTarget>;
  /** What a person sends for the placeholders of the report. */
  replacements: RequestedReplacement[];
  /** Claims of the tokens of the workload. Undefined for a service connection and an identity of its own. */
  claims: { issuer: string; subject: string; audience: string } | undefined;
  /** Name of its service connection. */
  connection: string | undefined;
  switched: boolean;
  /** Whether the person does not convert the connection yet. */
  isLeft?: boolean;
  lastUsedMs: number | undefined;
}

/** Opens a world with the applications of a drawn company whose runs are known. The logs are complete and name each sign-in. */
export async function openRunWorld(company: Company, drawn: readonly { name: string; scenario: string }[]) {
  const azurite = await openStorage();
  const { cloud, config } = await startTestCloud({ company });
  const world = new World(cloud, config, azurite.connectionString());
  const { control } = cloud;
  const { organization } = control.devops;
  const startedAt = world.clock.now();
  const devops: Devops = createDevops({
    config,
    identity: createIdentity(config),
    log: world.log,
    limits: world.limits,
    tables: world.tables(),
    audit: { append: async () => {} },
    clock: world.clock,
    randomness: systemRandomness(),
  });
  await devops.configure({ orgUrl: `https://dev.azure.com/${organization.name}` }, undefined, BOSS);
  const workloads = drawn.map(({ name, scenario }) => workloadOf(name, scenario));
  // The runs take years, in which no secret expires.
  for (const { appId, keyId } of workloads) control.directory.expireSecret(appId, keyId, 30_000);
  const lost = new Set<string>();
  const events: AuditEvent[] = [];
  let messages: { runId: string; dueAtMs: number }[] = [];
  /** Claims that Azure shows of a consumer. Undefined: none. */
  const shown = new Map<string, { issuers?: string[]; subjects?: string[] }>();
  world.afterWrite = async () => checkSignIns();
  /** Called before each call to Microsoft Graph. */
  const hooks = { beforeGraph: async (_method: string): Promise<void> => {} };

  function workloadOf(name: string, scenario: string): Workload {
    const appId = appIdOf(name);
    const base = { name, appId, keyId: keyIdOf(name, "current"), scenario, switched: false, lastUsedMs: undefined };
    const targets = new Map<string, SyncTarget>();
    const one = (kind: ConsumerKind, id: string, rest: Partial<SecretConsumer> = {}): SecretConsumer => ({
      id,
      kind,
      name: `${kind} of ${name}`,
      evidence: ["appsettings/CLIENT_SECRET"],
      strength: "references",
      places: [],
      copy: false,
      isCertain: true,
      refresh: "automatic",
      ...rest,
    });
    const azureId = (type: string) =>
      `/subscriptions/${guidFrom("subscription")}/resourceGroups/rg/providers/${type}/${name.toLowerCase().replace(" ", "-")}`;
    const withClaims = (consumer: SecretConsumer, issuer: string, subject: string): Workload => ({
      ...base,
      consumers: [consumer],
      targets,
      connection: undefined,
      claims: { issuer, subject, audience: AUDIENCE },
      replacements: [{ consumer: consumer.id, issuer, subject }],
    });
    switch (scenario) {
      case "manualConnection":
      case "automaticConnection": {
        const connection = [...organization.connections.values()].find(({ authorization }) =>
          Object.values(authorization.parameters).includes(appId),
        )!;
        const isAutomatic = scenario === "automaticConnection";
        const id = connectionId(organization.name, connection.projects[0]!.id, connection.id);
        const consumer = one("devopsServiceConnection", id, {
          refresh: isAutomatic ? "willBreak" : "action",
          copy: true,
        });
        const { issuer, subject } = control.devops.federationOf(connection);
        return {
          ...base,
          consumers: [consumer],
          targets,
          connection: connection.name,
          claims: undefined,
          replacements: isAutomatic ? [] : [{ consumer: id, issuer, subject }],
        };
      }
      case "apiManagement":
        return {
          ...base,
          consumers: [one("apiManagement", azureId("Microsoft.ApiManagement/service"))],
          targets,
          connection: undefined,
          claims: undefined,
          replacements: [],
        };
      case "cluster":
        return withClaims(
          one("kubernetesCluster", azureId("Microsoft.ContainerService/managedClusters")),
          `https://oidc.aks.example/${guidFrom(name)}/`,
          "system:serviceaccount:shop:web",
        );
      case "variableGroup":
        return withClaims(
          one("devopsVariableGroup", `devops:/acme/${guidFrom("project")}/variablegroups/7`),
          `${DEVOPS_ISSUER}/${guidFrom("acme")}`,
          `sc://acme/Apps/new-${name}`,
        );
      case "githubEnvironment":
      case "githubRepository": {
        const id = `sync:${name}`;
        targets.set(id, {
          provider: "github",
          region: undefined,
          name: scenario === "githubEnvironment" ? "acme/shop/production/SECRET" : "acme/shop/SECRET",
          location: { apiUrl: null },
        });
        const subject = `repo:acme/shop:environment:production-${name}`;
        const consumer = one("syncRecord", id);
        const workload = withClaims(consumer, "https://token.actions.githubusercontent.com", subject);
        return { ...workload, replacements: [{ consumer: id, subject }] };
      }
      default: {
        const kind = scenario.startsWith("container") ? "containerApp" : "webApp";
        const id = azureId(kind === "webApp" ? "Microsoft.Web/sites" : "Microsoft.App/containerApps");
        const consumer = one(kind, id);
        const subject = guidFrom(`identity of ${name}`);
        const workload = withClaims(consumer, `${config.cloud.issuers.v2}/${cloud.app.tenantId}/v2.0`, subject);
        return { ...workload, replacements: [{ consumer: id, subject }] };
      }
    }
  }

  /** Returns the report of an application as the service makes it from these consumers, with complete logs. */
  async function report(appId: string): Promise<SecretlessReport> {
    const { name, keyId, consumers, targets, lastUsedMs } = workloads.find((one) => one.appId === appId)!;
    const application = (await createGraph({
      config,
      identity: createIdentity(config),
      log: world.log,
    }).findApplication({
      appId,
    }))!;
    const federated = control.directory.federatedCredentials(appId);
    const context = {
      appId,
      tenantId: cloud.app.tenantId,
      entraIssuer: config.cloud.issuers.v2,
      audience: config.cloud.tokenExchangeAudience,
      federated: [],
    };
    const assessed = applyLimit(
      consumers.map((one) => ({ ...one, replacement: replacementOf(one, context, targets.get(one.id)) })),
      Math.min(federated.length, 1),
    );
    const evidence = {
      workspaces: 1,
      completeSince: startedAt.toISOString(),
      completeUntil: world.clock.now().toISOString(),
      lastSignIn: () => (lastUsedMs === undefined ? undefined : new Date(lastUsedMs).toISOString()),
    };
    const secret = application.passwords.find((one) => one.keyId === keyId);
    const usage = usageOf({ appId }, { keyId, startsOn: undefined }, evidence);
    return {
      appId,
      objectId: application.objectId,
      tenantId: cloud.app.tenantId,
      displayName: name,
      federatedCredentials: undefined,
      secrets: secret
        ? [
            {
              keyId,
              assetId: `entra.${appId}.${keyId}`,
              displayName: "current",
              expiresOn: undefined,
              ...verdictOf(assessed, { blockers: [], usage, isComplete: true }),
              usage,
              places: [],
              consumers: assessed,
              blockers: [],
              plan: [],
              unknown: [],
            },
          ]
        : [],
      unknown: [{ code: "handMadeCopies", message: "Copies that people made by hand are unknown.", remedy: "Ask." }],
    };
  }

  /** Every workload signs in now. Records each that can't. */
  function checkSignIns(): void {
    for (const one of workloads) {
      const value = secretValueOf(one.name, "current");
      const hasSecret = control.directory.signsIn(one.appId, value);
      if (one.connection !== undefined) {
        if (!connectionSignsIn(one, hasSecret)) lost.add(`${one.name}: the connection can't sign in`);
        continue;
      }
      // An identity of its own replaces the application.
      if (one.switched && one.claims === undefined) continue;
      if (one.switched) {
        if (!control.directory.signsInFederated(one.appId, one.claims!)) lost.add(`${one.name}: its token is rejected`);
        continue;
      }
      if (!hasSecret) lost.add(`${one.name}: its secret is rejected`);
      one.lastUsedMs = world.clock.now().getTime();
    }
  }

  function connectionSignsIn({ appId, connection }: Workload, hasSecret: boolean): boolean {
    const { authorization } = organization.connectionNamed(connection!);
    if (authorization.scheme === "ServicePrincipal") return hasSecret;
    const { workloadIdentityFederationIssuer: issuer, workloadIdentityFederationSubject: subject } =
      authorization.parameters;
    return control.directory.signsInFederated(appId, { issuer: issuer!, subject: subject!, audience: AUDIENCE });
  }

  /** Lets a workload switch to its token, and a person convert its connection, as the run tells them to. */
  function switchIfTold(run: RunRecord): void {
    const workload = workloads.find(({ appId }) => appId === run.appId)!;
    const step = (name: string) => run.steps.find((one) => one.name === name)?.status;
    if (workload.scenario === "manualConnection" && !workload.isLeft && run.connections[0]?.state === "waiting") {
      const connection = organization.connectionNamed(workload.connection!);
      if (connection.authorization.scheme === "ServicePrincipal") control.devops.federate(connection, true);
    }
    if (step("convert") === "done" && run.status === "running") workload.switched = true;
  }

  /** Creates an instance of the service, which crashes as `steps` says. */
  function start(steps: Steps = { taken: 0 }): SecretlessRuns {
    const identity = createIdentity(config);
    const once = <T extends object>(inner: T) => crashable(inner, steps, (method) => method !== "pages");
    const graph = new Proxy(createGraph({ config, identity, log: world.log, limits: world.limits }), {
      get: (target, name, receiver) => {
        const member: unknown = Reflect.get(target, name, receiver);
        if (typeof member !== "function") return member;
        return async (...args: unknown[]) => {
          await hooks.beforeGraph(String(name));
          return await member.apply(target, args);
        };
      },
    });
    return createSecretlessRuns({
      tables: crashable(world.tables(), steps, (method) => method !== "pages" && method !== "writtenLists"),
      queues: once({
        send: async (_queue: string, message: unknown, options: { delaySeconds?: number } = {}) => {
          const dueAtMs = world.clock.now().getTime() + (options.delaySeconds ?? 0) * SECOND_MS;
          messages.push({ ...(message as { runId: string }), dueAtMs });
        },
        checkReachable: async () => {},
      }),
      audit: once({ append: async (event: AuditEvent) => void events.push(event) }),
      graph: once(graph),
      devops: once({
        organization: async () => {
          const found = await devops.organization();
          return found && once(found);
        },
      }),
      exchange: createExchangeProof(config),
      report,
      claimsOf: async ({ id }) => shown.get(id) ?? {},
      rotationOf: async () => undefined,
      parseConnection(id) {
        const { projectId, connectionId: connection } = parseDevopsId(id) ?? {};
        return projectId === undefined || connection === undefined
          ? undefined
          : { projectId, connectionId: connection };
      },
      inventory: once({ applicationChanged: async () => {} }),
      clock: world.clock,
      randomness: systemRandomness(),
      log: world.log,
    });
  }

  /**
   * Delivers messages, and lets the timer run, until the run ends, needs attention or fulfills `until`. The first worker crashes as
   * `steps` says; another one then continues.
   */
  async function run(runId: string, options: { steps?: Steps; until?: (row: RunRecord) => boolean } = {}) {
    const reader = start();
    let worker = start(options.steps);
    for (let deliveries = 0; deliveries < 3000; deliveries++) {
      const row = await reader.get(runId);
      switchIfTold(row);
      checkSignIns();
      if (isOver(row.status) || row.status === "needsAttention" || options.until?.(row)) return row;
      messages.sort((a, b) => a.dueAtMs - b.dueAtMs);
      const message = messages.shift();
      const now = world.clock.now().getTime();
      // Without a message, the timer continues the run. The watch takes weeks, so it is checked every half day.
      const isWatching = row.watch !== undefined && Date.parse(row.dueAt) > now;
      const next = message?.dueAtMs ?? (isWatching ? now + DAY_MS / 2 : now + TIMER_MS);
      if (next > now) world.advanceClock(next - now);
      try {
        if (message === undefined) await worker.continueDue();
        else await worker.work(message.runId, "request-of-worker");
      } catch (error) {
        if (message !== undefined) messages.push({ ...message, dueAtMs: world.clock.now().getTime() + 5 * SECOND_MS });
        if (error instanceof SimulatedCrash) worker = start();
        else if (!options.steps) throw error;
      }
    }
    throw new Error(`The run ${runId} does not end: ${JSON.stringify(await reader.get(runId))}`);
  }

  /** Lets the timer run, and delivers each message that is due once. Returns the number of messages that are left. */
  async function tick(): Promise<number> {
    world.advanceClock(TIMER_MS);
    await start().continueDue();
    const now = world.clock.now().getTime();
    const due = messages.filter(({ dueAtMs }) => dueAtMs <= now);
    messages = messages.filter(({ dueAtMs }) => dueAtMs > now);
    for (const { runId } of due) await start().work(runId, "request-of-worker");
    return messages.length;
  }

  return {
    world,
    hooks,
    tick,
    connectionString: azurite.connectionString(),
    control,
    workloads,
    lost,
    events,
    shown,
    start,
    run,
    checkSignIns,
    clearMessages: () => {
      messages = [];
    },
    async stop() {
      await cloud.stop();
      await azurite.stop();
    },
  };
}
