import { type AssetRecord, Assets } from "../inventory/asset.ts";
import { nameKey, partitions } from "../inventory/layout.ts";
import { VAULTS, type VaultRecord, Vaults, vaultKey } from "../inventory/vault.ts";
import { type AssetChange, VaultBusy } from "../inventory/write.ts";
import type { Clock } from "../runtime.ts";
import type { Settings } from "../settings/settings.ts";
import { repeatOnConflict } from "../storage/conflict.ts";
import type { Row } from "../storage/entity.ts";
import { RowChanged, RowExists, type Tables } from "../storage/tables.ts";
import type { Context } from "./check.ts";
import { evaluateAsset, evaluateVault, keyOf } from "./evaluate.ts";
import { LINES_KEY, Lines, STATE, VaultStates, vaultStateKey } from "./layout.ts";
import { type AssetState, assetKey } from "./pack.ts";
import { commitState, forgetState, type KnownState, loadState } from "./vault-state.ts";

/** Of a vault's assets up to so many are read one by one; more are read with all the others. */
const MAX_POINT_READS = 20;

/** A vault's facts or assets changed; told before the vault's own rows are written, and perhaps twice. */
export interface VaultChange {
  vault: VaultRecord;
  vaultBefore: VaultRecord | undefined;
  vaultGone: boolean;
  assets: AssetChange[];
}

/** Evaluates vaults, one at a time, and is the only writer of their results. */
export function createEvaluator(deps: { tables: Tables; settings: Pick<Settings, "values">; clock: Clock }) {
  const { tables, settings, clock } = deps;

  /** The instant and the policy; undefined while evaluation is switched off. */
  async function context(): Promise<Context | undefined> {
    const values = await settings.values();
    if (!values.enableComplianceScanning) return undefined;
    return {
      now: clock.now().getTime(),
      criticalDays: values.criticalExpiryDays,
      warningDays: values.warningExpiryDays,
    };
  }

  /** Before anything was ever evaluated it is written down since when crossed lines count. One request a process. */
  let lines: Promise<void> | undefined;
  function ensureLines({ now, criticalDays, warningDays }: Context): Promise<void> {
    lines ??= (async () => {
      if (await tables.get(Lines, STATE, LINES_KEY)) return;
      const record = { at: new Date(now).toISOString(), criticalDays, warningDays, paused: false };
      try {
        await tables.insert(Lines, STATE, LINES_KEY, record);
      } catch (error) {
        if (!(error instanceof RowExists)) throw error;
      }
    })().catch((error: unknown) => {
      lines = undefined;
      throw error;
    });
    return lines;
  }

  /** Evaluates what a scan changed. Answers how many assets that were. */
  async function changed({ vault, vaultBefore, vaultGone, assets }: VaultChange): Promise<number> {
    if (vaultGone) {
      await repeatOnConflict(() => forget(vault.name));
      return 0;
    }
    const at = await context();
    if (!at) return 0;
    await ensureLines(at);
    return await repeatOnConflict(async () => {
      const known = await loadState(tables, vault.name);
      if (isCurrent(known, vault)) {
        const after = new Map(assets.map((change) => [assetKey(change.type, change.name), change.after]));
        await commitSome(known, vault, at, after);
        return after.size;
      }
      const all = vaultBefore ? await assetsOf(vault.name) : new Map<string, AssetRecord>();
      for (const { type, name, after } of assets) {
        if (after) all.set(assetKey(type, name), after);
        else all.delete(assetKey(type, name));
      }
      await commitAll(known, vault, at, all);
      return all.size;
    });
  }

  /**
   * Evaluates a vault and all its assets, or takes it out when the inventory has it no more.
   *
   * @throws {VaultBusy} while a scan writes it.
   */
  async function whole(vaultName: string, evaluationId?: string): Promise<number> {
    const at = await context();
    if (!at) return 0;
    await ensureLines(at);
    return await undisturbed(vaultName, async (vault, known, settled) => {
      const all = await assetsOf(vaultName);
      await settled();
      await commitAll(known, vault, at, all, evaluationId);
      return all.size;
    });
  }

  /**
   * Evaluates a vault and these of its assets (`<type>.<name>`), or those that are due by age. Answers how many.
   *
   * @throws {VaultBusy} while a scan writes it.
   */
  async function some(vaultName: string, wanted: readonly string[] | "due"): Promise<number> {
    const at = await context();
    if (!at) return 0;
    return await undisturbed(vaultName, async (vault, known, settled) => {
      const current = isCurrent(known, vault);
      const keys = wanted === "due" ? dueOf(known, at) : wanted;
      if (current && keys.length === 0) return 0;
      const found =
        current && keys.length <= MAX_POINT_READS ? await readEach(vaultName, keys) : await assetsOf(vaultName);
      await settled();
      if (!current) {
        await commitAll(known, vault, at, found);
        return found.size;
      }
      await commitSome(known, vault, at, new Map(keys.map((key) => [key, found.get(key)])));
      return keys.length;
    });
  }

  /** All assets anew. */
  async function commitAll(
    known: KnownState,
    vault: VaultRecord,
    at: Context,
    all: ReadonlyMap<string, AssetRecord>,
    evaluationId?: string,
  ): Promise<void> {
    const states = [...all].map(
      ([key, asset]) => [key, evaluateAsset(asset, vault.rbacAuthorization, at, known.assets.get(key))] as const,
    );
    await commit(known, vault, at, new Map(states), all, evaluationId);
  }

  /** These assets, of which the undefined are gone; the others stay as they stand. */
  async function commitSome(
    known: KnownState,
    vault: VaultRecord,
    at: Context,
    some: ReadonlyMap<string, AssetRecord | undefined>,
  ): Promise<void> {
    const states = new Map(known.assets);
    const evaluated = new Map<string, AssetRecord>();
    for (const [key, asset] of some) {
      if (asset) {
        states.set(key, evaluateAsset(asset, vault.rbacAuthorization, at, known.assets.get(key)));
        evaluated.set(key, asset);
      } else states.delete(key);
    }
    await commit(known, vault, at, states, evaluated);
  }

  async function commit(
    known: KnownState,
    vault: VaultRecord,
    at: Context,
    assets: Map<string, AssetState>,
    evaluated: ReadonlyMap<string, AssetRecord>,
    evaluationId?: string,
  ): Promise<void> {
    await commitState(tables, known, {
      vault,
      results: { ...evaluateVault(vault, at, known.row?.failures), assets },
      evaluated,
      at: new Date(at.now).toISOString(),
      evaluationId,
    });
  }

  async function forget(vaultName: string): Promise<void> {
    const row = await tables.get(VaultStates, STATE, vaultStateKey(vaultName));
    if (row) await forgetState(tables, row);
  }

  async function assetsOf(vaultName: string): Promise<Map<string, AssetRecord>> {
    const assets = new Map<string, AssetRecord>();
    const range = { partitionKey: partitions.vault(vaultName), from: "n!", before: 'n"' };
    for await (const rows of tables.pages(Assets, range)) for (const row of rows) assets.set(keyOf(row), row);
    return assets;
  }

  async function readEach(vaultName: string, keys: readonly string[]): Promise<Map<string, AssetRecord>> {
    const rows = await Promise.all(
      keys.map((key) => {
        const [type, name] = [key.slice(0, key.indexOf(".")) as AssetRecord["type"], key.slice(key.indexOf(".") + 1)];
        return tables.get(Assets, partitions.vault(vaultName), nameKey(type, name, vaultName));
      }),
    );
    return new Map(rows.filter((row) => row !== undefined).map((row) => [keyOf(row), row]));
  }

  /**
   * Runs `work` on a vault that no scan writes. A scan tells of its changes before it writes the vault's own rows, so what
   * is read in between is older than what is evaluated: the vault's row must be unlocked before its results are loaded,
   * and unchanged after its assets were read, which `settled` makes sure of.
   */
  async function undisturbed(
    vaultName: string,
    work: (vault: Row<VaultRecord>, known: KnownState, settled: () => Promise<void>) => Promise<number>,
  ): Promise<number> {
    return await repeatOnConflict(async () => {
      const vault = await tables.get(Vaults, VAULTS, vaultKey(vaultName));
      if (!vault) {
        await forget(vaultName);
        return 0;
      }
      const until = vault.pending && vault.lockedUntil ? new Date(vault.lockedUntil) : undefined;
      if (until && until > clock.now()) throw new VaultBusy(vaultName, until);
      const known = await loadState(tables, vaultName);
      return await work(vault, known, async () => {
        const now = await tables.get(Vaults, VAULTS, vaultKey(vaultName));
        if (now?.etag !== vault.etag) throw new RowChanged(Vaults.table, VAULTS, vaultKey(vaultName));
      });
    });
  }

  return { changed, whole, some, context, ensureLines };
}

/** Whether what is stored can be gone on with, rather than made anew from all assets. */
const isCurrent = ({ row, whole }: KnownState, vault: VaultRecord): boolean =>
  row !== undefined && !row.gone && whole && row.rbac === vault.rbacAuthorization;

const dueOf = ({ assets }: KnownState, { now }: Context): string[] =>
  [...assets].filter(([, { dueAt }]) => dueAt !== undefined && dueAt * 1000 <= now).map(([key]) => key);
