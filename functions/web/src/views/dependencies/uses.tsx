import { Link, makeStyles, tokens } from "@fluentui/react-components";
import { api, type Schemas } from "../../api/client.ts";
import { createHref } from "../../parts/address.ts";
import { ChoiceField } from "../../parts/fields.tsx";
import { Instant } from "../../parts/instant.tsx";
import { isolated } from "../../parts/isolated.ts";
import { BY_CURSOR, type Column, PagedTable } from "../../parts/paged-table.tsx";
import { useSearchParams } from "../../parts/router.tsx";

type Dependency = Schemas["Dependency"];

const useStyles = makeStyles({ filters: { display: "flex", flexWrap: "wrap", gap: tokens.spacingHorizontalM } });

/** The filters that are chosen from; their values are the API's own. */
const FILTERS = {
  strength: {
    label: "How it is known",
    options: {
      "": "any",
      references: "its configuration names the asset",
      entitled: "it may read it",
      observed: "a log has seen it",
    },
  },
  refresh: {
    label: "On a new version",
    options: {
      "": "any",
      automatic: "takes it by itself",
      action: "takes it when told to",
      blind: "nobody can see when",
      willBreak: "goes on with the old one",
    },
  },
  resolved: { label: "Reference", options: { "": "any", true: "can be followed", false: "can't be followed" } },
  pinned: { label: "Version", options: { "": "any", true: "names one", false: "takes the newest" } },
} as const;
type Filter = keyof typeof FILTERS;
const NAMES = Object.keys(FILTERS) as Filter[];

const COLUMNS: Column<Dependency>[] = [
  {
    title: "Asset",
    cell: ({ secret, vaultName, name }) =>
      secret === null ? (
        `all of ${vaultName}`
      ) : (
        <Link href={createHref(`/dependencies/${encodeURIComponent(secret)}`, {})}>
          {vaultName}/{name}
        </Link>
      ),
  },
  {
    title: "Used by",
    cell: ({ resource: { name, kind, managedBy } }) =>
      `${isolated(name)} (${kind})${managedBy === null ? "" : `, written by ${isolated(managedBy)} too`}`,
  },
  { title: "Environment", cell: ({ resource }) => resource.environment ?? "" },
  {
    title: "How",
    cell: ({ strength, evidence, copy }) => `${strength}: ${isolated(evidence)}${copy ? " (a copy of the value)" : ""}`,
  },
  {
    title: "On a new version",
    cell: ({ refresh, pinned }) => `${refresh.how}${pinned === null ? "" : `, names version ${pinned}`}`,
  },
  { title: "Reference", cell: ({ state }) => state && (state.resolved ? "followed" : state.status) },
  { title: "Seen", cell: ({ seenAt }) => <Instant at={seenAt} relative /> },
];

/** Who uses what, by the filters in the address. */
export function Uses() {
  const styles = useStyles();
  const [params, setParams] = useSearchParams();
  const given = Object.fromEntries(
    ["vault", ...NAMES].flatMap((name) => (params.get(name) ? [[name, params.get(name)]] : [])),
  );
  const query = { limit: 100, ...given };
  const list = api.useInfiniteQuery("get", "/api/assets/dependencies", { params: { query } }, BY_CURSOR);
  const set = (name: Filter, value: string) =>
    setParams((before) => {
      if (value === "") before.delete(name);
      else before.set(name, value);
      return before;
    });
  return (
    <>
      <div className={styles.filters}>
        {NAMES.map((name) => (
          <ChoiceField
            key={name}
            name={name}
            label={FILTERS[name].label}
            options={FILTERS[name].options as Record<string, string>}
            value={params.get(name) ?? ""}
            choose={(value) => set(name, value)}
          />
        ))}
      </div>
      <PagedTable
        of={list}
        columns={COLUMNS}
        keyOf={({ secret, vaultName, resource, evidence }) => [secret, vaultName, resource.id, evidence].join(" ")}
        label="Who uses what"
        none="No use is known."
      />
    </>
  );
}
