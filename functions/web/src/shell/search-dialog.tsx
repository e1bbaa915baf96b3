import {
  Dialog,
  DialogBody,
  DialogContent,
  DialogSurface,
  DialogTitle,
  Link,
  makeStyles,
  SearchBox,
  Subtitle2,
  Text,
  tokens,
} from "@fluentui/react-components";
import { keepPreviousData } from "@tanstack/react-query";
import { type KeyboardEvent, type ReactNode, useEffect, useRef, useState } from "react";
import { useMay, useRoleAllows } from "../api/access.ts";
import { api, type Schemas } from "../api/client.ts";
import { createHref } from "../parts/address.ts";
import { QueryFailure } from "../parts/query-result.tsx";
import { navigate } from "../parts/router.tsx";
import { StatusBadge } from "../parts/status.tsx";
import { VIEWS } from "../views/views.ts";

type Item = Schemas["SearchItem"];

const GROUPS: Record<Item["kind"], { title: string; href(id: string): string }> = {
  asset: { title: "Assets", href: (id) => createHref(`/inventory/${encodeURIComponent(id)}`) },
  vault: { title: "Vaults", href: (vault) => createHref("/inventory", { vault }) },
  application: { title: "Applications", href: (id) => createHref(`/rotation/apps/${encodeURIComponent(id)}`) },
  violation: { title: "Violations", href: (check) => createHref("/compliance", { check, exempted: "false" }) },
  rule: { title: "Alert rules", href: (id) => createHref(`/alerts/rules/${encodeURIComponent(id)}`) },
  user: { title: "Users", href: () => createHref("/access") },
};

/** The API requires this many characters. */
const MIN_CHARACTERS = 2;
/** Pause after the last keystroke before the request, so that typing a word is one request. */
const PAUSE_MS = 300;

const useStyles = makeStyles({
  surface: { maxWidth: "min(640px, 100vw)" },
  content: {
    display: "flex",
    flexDirection: "column",
    gap: tokens.spacingVerticalM,
    // The height stays the same while results change.
    height: "min(60dvh, 480px)",
    overflowY: "auto",
    overflowWrap: "anywhere",
  },
  box: { maxWidth: "none", width: "100%", flexShrink: 0 },
  title: { margin: 0 },
  list: {
    display: "flex",
    flexDirection: "column",
    gap: tokens.spacingVerticalXS,
    margin: 0,
    padding: 0,
    listStyleType: "none",
  },
  item: { display: "flex", flexWrap: "wrap", gap: tokens.spacingHorizontalS, alignItems: "center" },
});

/** The dialog of the search. Arrow keys move between the box and the results. Enter in the box opens the first result. */
export default function SearchDialog({ close }: { close(): void }) {
  const styles = useStyles();
  const may = useMay();
  const content = useRef<HTMLDivElement>(null);
  const [text, setText] = useState("");
  const [query, setQuery] = useState("");
  useEffect(() => {
    const timer = setTimeout(() => setQuery(text.trim()), PAUSE_MS);
    return () => clearTimeout(timer);
  }, [text]);
  const isSearched = query.length >= MIN_CHARACTERS;
  const results = api.useQuery(
    "get",
    "/api/search",
    { params: { query: { q: query } } },
    { enabled: isSearched && may("search"), placeholderData: keepPreviousData },
  );
  const isCurrent = isSearched && text.trim() === query && !results.isFetching;

  function open(href: string) {
    close();
    // Without the number sign of the fragment.
    navigate(href.slice(1));
  }
  function moveFocus(event: KeyboardEvent) {
    if (event.key !== "ArrowDown" && event.key !== "ArrowUp") return;
    event.preventDefault();
    const stops = [...(content.current?.querySelectorAll<HTMLElement>("input, a") ?? [])];
    const next = stops.indexOf(document.activeElement as HTMLElement) + (event.key === "ArrowDown" ? 1 : -1);
    stops[Math.min(Math.max(next, 0), stops.length - 1)]?.focus();
  }

  return (
    <Dialog open onOpenChange={(_, data) => data.open || close()}>
      <DialogSurface className={styles.surface}>
        <DialogBody>
          <DialogTitle>Search</DialogTitle>
          <DialogContent ref={content} className={styles.content} onKeyDown={moveFocus}>
            <SearchBox
              className={styles.box}
              value={text}
              onChange={(_, { value }) => setText(value)}
              placeholder="Assets, vaults, applications, violations, rules, people"
              aria-label="Search text"
              autoFocus
              onKeyDown={({ key }) => {
                const first = content.current?.querySelector<HTMLAnchorElement>("a");
                // Not while results of an earlier text are shown: Enter would open one of them.
                if (key === "Enter" && first && (isCurrent || !isSearched)) open(first.getAttribute("href")!);
              }}
            />
            <Pages text={text.trim()} open={open} />
            {isSearched && <QueryFailure of={results} />}
            {isSearched && results.data?.groups.map((group) => <Group key={group.kind} group={group} open={open} />)}
            <Text role="status" size={200}>
              {text.trim().length < MIN_CHARACTERS
                ? `Enter at least ${MIN_CHARACTERS} characters of a name.`
                : isCurrent && results.data
                  ? summaryOf(results.data)
                  : ""}
            </Text>
          </DialogContent>
        </DialogBody>
      </DialogSurface>
    </Dialog>
  );
}

const countItems = (groups: Schemas["SearchGroup"][]): number =>
  groups.reduce((sum, { items }) => sum + items.length, 0);

function summaryOf({ groups, complete }: Schemas["SearchResult"]): string {
  const count = countItems(groups);
  const found = count === 0 ? "Nothing found." : `${count.toLocaleString()} shown.`;
  return complete ? found : `${found} Not everything was searched.`;
}

/** Links to the views whose title contains the text. */
function Pages({ text, open }: { text: string; open(href: string): void }) {
  const styles = useStyles();
  const roleAllows = useRoleAllows();
  const matches = VIEWS.filter(
    ({ title, needs }) => text !== "" && title?.toLowerCase().includes(text.toLowerCase()) && roleAllows(needs),
  );
  if (matches.length === 0) return null;
  return (
    <section aria-label="Pages">
      <Subtitle2 as="h3" className={styles.title}>
        Pages
      </Subtitle2>
      <ul className={styles.list}>
        {matches.map(({ path, title }) => (
          <li key={path}>
            <ResultLink href={createHref(path)} open={open}>
              {title!}
            </ResultLink>
          </li>
        ))}
      </ul>
    </section>
  );
}

function Group({
  group: { kind, items, total, complete },
  open,
}: {
  group: Schemas["SearchGroup"];
  open(href: string): void;
}) {
  const styles = useStyles();
  const { title, href } = GROUPS[kind];
  const more = total !== null && total > items.length;
  return (
    <section aria-label={title}>
      <Subtitle2 as="h3" className={styles.title}>
        {title}
        {more && ` (${items.length} of ${total.toLocaleString()})`}
      </Subtitle2>
      <ul className={styles.list}>
        {items.map((item) => (
          <li key={item.id} className={styles.item}>
            <ResultLink href={href(item.id)} open={open}>
              <bdi>{item.title}</bdi>
            </ResultLink>
            {item.status && <StatusBadge status={item.status} />}
            <Text size={200}>
              <bdi>{item.detail}</bdi>
            </Text>
          </li>
        ))}
      </ul>
      {!complete && (
        <Text size={200} block>
          Only a part of this list was searched.{" "}
          {kind === "asset" && "Enter the start of the name: names have an index, so that finds every asset."}
        </Text>
      )}
    </section>
  );
}

/** A link that closes the dialog. */
function ResultLink({ href, open, children }: { href: string; open(href: string): void; children: ReactNode }) {
  return (
    <Link
      href={href}
      onClick={(event) => {
        // A click with a modifier key opens another tab or window.
        if (event.ctrlKey || event.metaKey || event.shiftKey) return;
        event.preventDefault();
        open(href);
      }}
    >
      {children}
    </Link>
  );
}
