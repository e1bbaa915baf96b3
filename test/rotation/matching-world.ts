import type { Cloud } from "simulated-cloud/cloud.ts";
import { secretValueOf } from "simulated-cloud/company/applications.ts";
import type { AutomationType } from "../../shared/alerts/automation-events.ts";
import { createRotationNotices } from "../../shared/alerts/rotation-notices.ts";
import { bucketOf, credentialName, holderName, newHolder } from "../../shared/inventory/holder.ts";
import { createInventoryWriter, type InventoryWriter } from "../../shared/inventory/write.ts";
import type { CallLimits } from "../../shared/platform/azure/calls.ts";
import { createGraph } from "../../shared/platform/azure/graph.ts";
import { createIdentity } from "../../shared/platform/azure/identity.ts";
import { createSignInProof } from "../../shared/platform/azure/sign-in-proof.ts";
import { createVaultSecrets } from "../../shared/platform/azure/vault-secrets.ts";
import type { Config } from "../../shared/platform/config/config.ts";
import { createAutomaticRotation } from "../../shared/rotation/automatic.ts";
import { createMatches } from "../../shared/rotation/matches.ts";
import { createPolicies } from "../../shared/rotation/policies.ts";
import { PolicyChange } from "../../shared/rotation/policies-api.ts";
import type { ClientSecretRequest } from "../../shared/rotation/request.ts";
import type { Rotations } from "../../shared/rotation/rotations.ts";
import { SHORT_WAITS } from "../azure/services.ts";
import { assetRecord, vaultRecord, writeVault } from "../inventory/write-assets.ts";
import { BOSS, VAULT, World } from "./world.ts";

let applicationCount = 0;

/**
 * Creates a `World` (rotations on real tables and the simulated cloud) with matches, policies and automatic rotations on top.
 *
 * @returns the services under test, and helpers that add applications and vault secrets and run the timer.
 */
export function openMatchingFixture(
  { cloud, config }: { cloud: Cloud; config: Config },
  connectionString: string,
  limits: Partial<CallLimits> = SHORT_WAITS,
) {
  const world = new World(cloud, config, connectionString);
  world.limits = limits;
  const { control } = cloud;
  const tables = world.tables();
  const settings = {
    values: async () => ({ rotationTriggerDays: 30, defaultValidityDays: 180, ...fixture.settings }) as never,
  };
  const identity = createIdentity(config);
  const services = { config, identity, log: world.log, limits };
  const graph = createGraph(services);
  const proof = createSignInProof(config);
  const { clock, log } = world;
  const audit = { append: async (event: (typeof world.events)[number]) => void world.events.push(event) };
  let proofCount = 0;
  const matches = createMatches({
    tables,
    audit,
    config,
    clock,
    log,
    // Allows twenty sign-ins that prove what a vault secret stores.
    limiter: {
      take: async () => ({
        allowed: ++proofCount <= 20,
        limit: 20,
        remaining: 0,
        resetSeconds: 9,
        retryAfterSeconds: 9,
      }),
      cleanUp: async () => {},
    },
    vaults: createVaultSecrets(services),
    app: (appId) => graph.findApplication({ appId }),
    proveSignIn: (appId, secret) => proof(appId, secret, cloud.app.tenantId),
  });
  world.matches = matches;
  const rotations = world.start();
  const policies = createPolicies({
    tables,
    settings,
    audit,
    config,
    clock,
    log,
    app: async (appId) => {
      const app = await graph.findApplication({ appId });
      return app && { ...app, reasons: fixture.reasons };
    },
    passwordPolicy: graph.passwordPolicy,
    matches,
  });
  const enqueuedAppIds: string[] = [];
  const licensed = async () => world.tier === "pro";
  const createAutomatic = (workerRotations: Rotations) =>
    createAutomaticRotation({
      tables,
      queues: {
        send: async (_queue, message) => void enqueuedAppIds.push((message as { appId: string }).appId),
        checkReachable: async () => {},
      },
      settings,
      clock,
      log,
      licensed,
      graph,
      matches,
      rotations: workerRotations,
    });
  const automatic = createAutomatic(rotations);
  const notices = createRotationNotices({ tables, clock, log, settings, licensed, policies, rotations });
  const writer = createInventoryWriter({ tables });

  const fixture = {
    world,
    control,
    graph,
    matches,
    policies,
    automatic,
    /** Creates the automatic rotation of a worker, which starts rotations with the worker's own `Rotations`. */
    createAutomatic,
    rotations,
    /** Client IDs in the messages that the timer sent. */
    sent: enqueuedAppIds,
    /** Settings that a test overrides. */
    settings: {} as Record<string, number>,
    /** Reasons why no application can be rotated. Empty by default: all can. */
    reasons: [] as string[],
    /** Resource IDs by vault name. A vault that is not listed has the ID that `vaultRecord` creates. */
    vaultIds: {} as Record<string, string>,

    /** Adds an application with one client secret, and a vault secret whose content type names it and whose value it is. */
    addApplication({
      expiresInDays = 20,
      value,
      vaultName = VAULT,
    }: {
      expiresInDays?: number;
      value?: string;
      vaultName?: string;
    } = {}) {
      const name = `app-${++applicationCount}`;
      const secrets = [{ name: "old", expiresInDays }];
      const appId = control.directory.putApplication({ name, secrets });
      const { keyId } = control.directory.secrets(appId)[0]!;
      const vaultSecret = {
        name,
        value: value ?? secretValueOf(name, "old"),
        contentType: `${name}:${appId}:${keyId}`,
      };
      control.putSecret(vaultName, { ...vaultSecret, createdDaysAgo: 30 });
      return {
        name,
        appId,
        keyId,
        assetId: `${vaultName}.secret.${name}`,
        contentType: vaultSecret.contentType,
        vaultName,
      };
    },

    /** Copies an application's secret, with its content type, into another vault: as a second place or as a thief would. */
    copySecretTo<A extends { name: string; contentType: string }>(app: A, vaultName: string, createdDaysAgo = 1) {
      const { name, contentType } = app;
      control.putSecret(vaultName, { name, value: secretValueOf(name, "old"), contentType, createdDaysAgo });
      return { ...app, vaultName, assetId: `${vaultName}.secret.${name}` };
    },

    requestFor: (
      app: { appId: string; keyId: string },
      rest: Partial<ClientSecretRequest> = {},
    ): ClientSecretRequest => ({
      appId: app.appId,
      secretId: app.keyId,
      updateKeyVaults: true,
      overlapDays: 1,
      removeExpired: false,
      ...rest,
    }),

    /** Writes the rows that scans and discoveries create for these applications and the secrets of their vaults. */
    async discover(...apps: DiscoveredApplication[]) {
      for (const vaultName of new Set(apps.map((app) => app.vaultName)))
        await writeScannedVault(
          { world, writer, vaultId: fixture.vaultIds[vaultName] },
          vaultName,
          apps.filter((app) => app.vaultName === vaultName),
        );
      await writeDirectory({ world, writer }, apps);
      await matches.index.update();
    },

    /** Confirms, as an administrator, that each vault secret stores the client secret that it names. */
    async confirm(...apps: { appId: string; keyId: string; assetId: string }[]) {
      for (const { appId, keyId, assetId } of apps)
        await matches.confirm(appId, { assetId, keyId, confirmed: true }, BOSS);
    },

    setPolicy: (appId: string, change: object = {}) =>
      policies.set(appId, PolicyChange.parse({ automatic: true, ...change }), BOSS, undefined),

    /** Runs the timer and delivers each message that it sent `times` times. Returns the applications that were due. */
    async runTimer(times = 1): Promise<string[]> {
      await automatic.enqueueDue();
      const appIds = enqueuedAppIds.splice(0);
      for (const appId of appIds) for (let time = 0; time < times; time++) await automatic.begin(appId, "timer");
      return appIds;
    },

    rotationsOf: async (appId: string) =>
      (await rotations.history({ subject: appId }, { limit: 100, offset: 0, cursor: undefined })).items,

    /** Returns the JSON of the pending alerts of this type. */
    async notices(type: AutomationType) {
      const texts: string[] = [];
      for await (const pending of notices.notices(type, new Date(0)))
        for (const { notice } of pending) {
          const alertText = await notice();
          if (alertText) texts.push(JSON.stringify(alertText));
        }
      return texts;
    },
  };
  return fixture;
}

/** An application, and the vault secret with its client secret. */
interface DiscoveredApplication {
  name: string;
  appId: string;
  /** Content type of the vault secret. */
  contentType: string;
  vaultName: string;
  createdOn?: number;
  tags?: Record<string, string> | undefined;
}

interface Writing {
  world: World;
  writer: InventoryWriter;
}

/** Writes the rows that a scan of a vault creates. */
async function writeScannedVault(
  { world, writer, vaultId }: Writing & { vaultId: string | undefined },
  vaultName: string,
  apps: readonly DiscoveredApplication[],
): Promise<void> {
  const vault = {
    ...vaultRecord(vaultName),
    ...(vaultId !== undefined && { id: vaultId }),
    vaultUri: world.vaultUriOf(vaultName),
    // A new fingerprint of the vault's secrets, so that the update of the matches reads this vault again.
    contents: { secret: `${Math.random()}` },
  };
  const secretOf = ({ name, contentType, createdOn, tags }: DiscoveredApplication) =>
    assetRecord(vault, "secret", name, {
      contentType,
      ...(createdOn !== undefined && { createdOn }),
      ...(tags && { tags }),
    });
  await writeVault(writer, vault, apps.map(secretOf));
}

/**
 * Writes the rows that a discovery of applications creates for their client secrets. Credentials that are in no key vault are
 * stored like assets of a vault, in internal vault records (holders). Each holder has the applications of one bucket of IDs.
 */
async function writeDirectory({ world, writer }: Writing, apps: readonly DiscoveredApplication[]): Promise<void> {
  const byAppId = [...new Map(apps.map(({ appId, name }) => [appId, { appId, name }])).values()];
  for (const bucket of new Set(byAppId.map(({ appId }) => bucketOf(appId)))) {
    const { tenantId } = world.cloud.app;
    const name = holderName(tenantId, bucket);
    const holder = newHolder({ name, source: "entra", tenantId }, world.clock.now().toISOString());
    const secrets = byAppId
      .filter(({ appId }) => bucketOf(appId) === bucket)
      .flatMap(({ appId, name }) =>
        world.cloud.control.directory.secrets(appId).map((one) => ({ ...one, appId, name })),
      )
      .filter(({ removedAt }) => removedAt === undefined);
    const credentials = secrets.map(({ appId, name, keyId, expiresOn }) =>
      assetRecord(holder, "secret", credentialName(appId, keyId), {
        source: "entra",
        expiresOn: Date.parse(expiresOn) / 1000,
        credential: {
          tenantId,
          appId,
          applicationName: name,
          keyId,
          of: "application",
          secretsUntil: [],
        },
      }),
    );
    await writeVault(writer, holder, credentials);
  }
}
