import { Badge, Link, Text } from "@fluentui/react-components";
import { type ReactNode, useMemo, useState } from "react";
import { api, type Schemas } from "../../api/client.ts";
import { createHref } from "../../parts/address.ts";
import { daysWithin, expiresWithin } from "../../parts/expires-within.ts";
import { type Filter, Filters } from "../../parts/filters.tsx";
import { Expiry, Instant } from "../../parts/instant.tsx";
import { BY_CURSOR, type Column, PagedTable } from "../../parts/paged-table.tsx";
import { counted } from "../../parts/plural.ts";
import { QueryFailure } from "../../parts/query-result.tsx";
import { type QuickFilter, QuickFilters } from "../../parts/quick-filters.tsx";
import { statusTextOf } from "../../parts/rotation-texts.ts";
import { useSearchParams } from "../../parts/router.tsx";
import { Discover } from "./discover.tsx";
import {
  isInProgress,
  KEY_KINDS,
  ORDERS,
  type Order,
  type Row,
  rowOfKeys,
  rowsOfApplication,
  sorted,
  stateText,
} from "./rows.ts";

/** Number of applications, or of pairs of keys, in one response. The rows of all loaded responses are sorted here. */
const LIMIT = 1000;
/** Number of rows that are rendered at first, and with each "Load more". */
const ROWS = 100;
/** Number of recent rotations in which the latest one of each credential is searched. */
const SEARCHED_ROTATIONS = 200;

/** Kinds in the address: those of one issuer, or one kind of resource or login. */
const CLIENT_SECRET = "clientSecret";
const ISSUERS = { resourceKey: "Key of a resource", databaseLogin: "Database login" } as const;

const QUICK_FILTERS: readonly QuickFilter[] = [
  ["Client secrets", "kind", CLIENT_SECRET],
  ["Keys of resources", "kind", "resourceKey"],
  ["Expired or due in 30 days", "due", "30"],
];
const FILTERS: readonly Filter[] = [
  { name: "search", label: "Name contains" },
  {
    name: "kind",
    label: "Kind",
    values: { [CLIENT_SECRET]: "Client secret", ...ISSUERS, ...KEY_KINDS },
  },
];

const STATE_COLORS = {
  ready: "success",
  inProgress: "brand",
  blocked: "informative",
} as const satisfies Record<Exclude<Row["state"], "match" | "superseded">, string>;

/** The state of a credential's rotation, with the link to the next step, or why no rotation is possible. */
function State({ row }: { row: Row }) {
  if (row.state === "superseded" || row.state === "match")
    return (
      <Link href={row.holder.href ?? row.href} aria-label={`${stateText(row)}: ${row.name}`}>
        {stateText(row)}
      </Link>
    );
  return (
    <>
      <Badge appearance="tint" color={STATE_COLORS[row.state]}>
        {stateText(row)}
      </Badge>{" "}
      {row.blockers}
    </>
  );
}

/** The latest rotation. `hasOlder`: whether the history has rotations that were not searched. */
function LastRotation({ row: { rotation }, hasOlder }: { row: Row; hasOlder: boolean }) {
  if (rotation?.rotationId == null) return hasOlder ? "None recently" : "None";
  return (
    <>
      <Link href={createHref(`/rotation/${rotation.rotationId}`)}>
        {isInProgress(rotation) ? `In progress: ${statusTextOf(rotation)}` : statusTextOf(rotation)}
      </Link>{" "}
      {rotation.endedAt !== null && <Instant at={rotation.endedAt} relative />}
    </>
  );
}

/** The vault secrets that store a credential. */
function Places({ row: { places, holder } }: { row: Row }): ReactNode {
  if (places === undefined)
    return holder.href === undefined ? (
      "Unknown"
    ) : (
      <Link href={holder.href} aria-label={`Show vault secrets that may store it: ${holder.name}`}>
        Show vault secrets that may store it
      </Link>
    );
  return places.map(({ name, href }, index) => (
    <span key={href}>
      {index > 0 && ", "}
      <Link href={href}>{name}</Link>
    </span>
  ));
}

/** Returns the columns. The headers of the sorted ones change the order in the address. */
function columnsOf(order: Order, choose: (order: Order) => void, hasOlder: boolean): Column<Row>[] {
  const sortBy = (column: Order) => ({ isSorted: order === column, choose: () => choose(column) });
  return [
    { title: "Credential", sort: sortBy("name"), cell: ({ name, href }) => <Link href={href}>{name}</Link> },
    { title: "Kind", sort: sortBy("kind"), cell: ({ kind }) => kind },
    {
      title: "Resource or application",
      cell: ({ holder: { name, href } }) => (href === undefined ? name : <Link href={href}>{name}</Link>),
    },
    { title: "Stored in", cell: (row) => <Places row={row} /> },
    {
      title: "Expires",
      sort: sortBy("expires"),
      cell: ({ expiresOn }) => <Expiry at={expiresOn} />,
    },
    { title: "Rotation", wide: true, cell: (row) => <State row={row} /> },
    { title: "Last rotation", cell: (row) => <LastRotation row={row} hasOlder={hasOlder} /> },
  ];
}

/** How many of the listed credentials have expired, and when vault secrets were last compared with keys. */
function Totals({ rows, isIncomplete }: { rows: readonly Row[]; isIncomplete: boolean }) {
  const now = new Date().toISOString();
  const expired = rows.filter(({ expiresOn }) => expiresOn !== null && expiresOn < now);
  const unused = expired.filter(({ state }) => state === "superseded").length;
  const comparedAt = rows.reduce((last, row) => ((row.comparedAt ?? "") > last ? row.comparedAt! : last), "");
  return (
    <Text>
      {isIncomplete && "At least "}
      {counted(rows.length, "credential")}, {expired.length.toLocaleString()} expired
      {unused > 0 && `, of which ${unused.toLocaleString()} can be deleted if unused`}.
      {comparedAt !== "" && (
        <>
          {" "}
          Keys were last compared with vault secrets <Instant at={comparedAt} relative />.
        </>
      )}
    </Text>
  );
}

/** Returns which lists the filters in the address select, and the query of each. An unknown kind counts as no filter. */
function filtersOf(params: URLSearchParams) {
  const [kind, search, due] = [params.get("kind") ?? "", params.get("search") ?? "", daysWithin(params, "due")];
  const expiresBefore = due === undefined ? undefined : expiresWithin(due).expiresBefore;
  const common = { limit: LIMIT, ...(search !== "" && { search }) };
  const [isKeyKind, isIssuer] = [Object.hasOwn(KEY_KINDS, kind), Object.hasOwn(ISSUERS, kind)];
  return {
    hasApplications: !isKeyKind && !isIssuer,
    hasKeys: kind !== CLIENT_SECRET,
    /** Returns whether a pair of keys or users is of the selected issuer, for which the API has no filter. */
    isOfIssuer: ({ issuer }: Schemas["RotationCredential"]) => !isIssuer || issuer === kind,
    expiresBefore,
    // The API takes a time for applications, and a number of days for keys.
    apps: { ...common, ...(expiresBefore !== undefined && { expiresBefore }) },
    keys: {
      ...common,
      ...(isKeyKind && { kind: kind as keyof typeof KEY_KINDS }),
      ...(due !== undefined && { due }),
    },
  };
}

/** The table of all credentials. Filters and order are in the address. */
export function CredentialTable() {
  const [params, setParams] = useSearchParams();
  const [shown, setShown] = useState(ROWS);
  const { hasApplications, hasKeys, isOfIssuer, expiresBefore, ...queries } = useMemo(
    () => filtersOf(params),
    [params],
  );
  const apps = api.useInfiniteQuery(
    "get",
    "/api/automation/rotation/apps",
    { params: { query: queries.apps } },
    { ...BY_CURSOR, enabled: hasApplications },
  );
  const keys = api.useInfiniteQuery(
    "get",
    "/api/automation/rotation/credentials",
    { params: { query: queries.keys } },
    { ...BY_CURSOR, enabled: hasKeys },
  );
  const history = api.useQuery("get", "/api/automation/rotation/history", {
    params: { query: { limit: SEARCHED_ROTATIONS } },
  });
  const sort = params.get("sort") ?? "";
  const order = Object.hasOwn(ORDERS, sort) ? (sort as Order) : "expires";
  const choose = (next: Order) =>
    setParams((before) => {
      before.set("sort", next);
      return before;
    });
  const lists = [...(hasApplications ? [apps] : []), ...(hasKeys ? [keys] : [])];
  const isLoaded = lists.every(({ data, error }) => data !== undefined || error) && !history.isPending;
  const rotations = history.data?.items ?? [];
  const rows = [
    ...(hasKeys ? (keys.data?.pages ?? []) : []).flatMap(({ items }) =>
      items.filter(isOfIssuer).map((one) => rowOfKeys(one, rotations)),
    ),
    ...(hasApplications ? (apps.data?.pages ?? []) : []).flatMap(({ items }) =>
      items.flatMap((one) => rowsOfApplication(one, rotations)),
    ),
    // The API returns whole applications: one that has a due credential may have others.
  ].filter(({ expiresOn }) => expiresBefore === undefined || (expiresOn !== null && expiresOn < expiresBefore));
  const incomplete = lists.filter(({ hasNextPage }) => hasNextPage);
  const isUnread = lists.some(({ data, error }) => data === undefined && error);
  const loadMore = async () => {
    setShown(shown + ROWS);
    // From both lists, because the next row in the order can be in either.
    if (rows.length <= shown + ROWS) await Promise.all(incomplete.map((list) => list.fetchNextPage()));
  };
  const items = sorted(rows, order).slice(0, shown);
  // Stands for both lists. Their failures are shown above the table.
  const table = {
    ...keys,
    error: null,
    data: isLoaded ? { pages: [{ items, nextCursor: null }], pageParams: [null] } : undefined,
    hasNextPage: rows.length > shown || incomplete.length > 0,
    isFetchingNextPage: lists.some(({ isFetchingNextPage }) => isFetchingNextPage),
    fetchNextPage: loadMore,
  };
  return (
    <>
      {isLoaded && <Totals rows={rows} isIncomplete={incomplete.length > 0} />}
      <Discover />
      <QuickFilters of={QUICK_FILTERS} />
      <Filters of={FILTERS} alsoCleared={["due"]} />
      <QueryFailure of={apps} />
      <QueryFailure of={keys} />
      <QueryFailure of={history} />
      {incomplete.length > 0 && <Text>Not all credentials are loaded. The order covers the loaded ones.</Text>}
      {/* Without rows, a failure above already says why. */}
      {!(isUnread && rows.length === 0) && (
        <PagedTable
          of={table}
          columns={columnsOf(order, choose, history.data?.nextCursor != null)}
          keyOf={({ id }) => id}
          label="Credentials"
          empty="No credentials match the filters. Clear the filters, select Find credentials, or refresh the applications on the Rotation page."
          csv
        />
      )}
    </>
  );
}
