import {
  Button,
  Input,
  Link,
  makeStyles,
  Popover,
  PopoverSurface,
  PopoverTrigger,
  Text,
  tokens,
} from "@fluentui/react-components";
import { type FormEvent, useState } from "react";
import { createHref } from "../../parts/address.ts";
import { useLocation } from "../../parts/router.tsx";

const useStyles = makeStyles({
  surface: { display: "flex", flexDirection: "column", gap: tokens.spacingVerticalS, maxWidth: "min(360px, 80vw)" },
  list: { margin: 0, padding: 0, listStyleType: "none" },
  item: { display: "flex", justifyContent: "space-between", gap: tokens.spacingHorizontalM, alignItems: "center" },
  name: { overflowWrap: "anywhere" },
  form: { display: "flex", gap: tokens.spacingHorizontalS },
});

/** A saved view: its name, and the query of the address with filters, order and columns. */
interface SavedView {
  name: string;
  search: string;
}

const STORAGE_KEY = "inventoryViews";
const MAX_NAME_CHARACTERS = 60;

/** Returns the views that this browser stores. Anything else under the key is ignored. */
function readViews(): SavedView[] {
  try {
    const views: unknown = JSON.parse(localStorage.getItem(STORAGE_KEY) ?? "[]");
    if (!Array.isArray(views)) return [];
    return views.filter((view) => typeof view?.name === "string" && typeof view?.search === "string");
  } catch {
    return [];
  }
}

/**
 * The menu of saved views. A view is an address with a name. The browser stores the names; "Copy link" shares the address with
 * other people.
 */
export function SavedViews() {
  const styles = useStyles();
  const { search } = useLocation();
  const [views, setViews] = useState(readViews);
  const [copied, setCopied] = useState<string>();
  const [isOpen, setOpen] = useState(false);
  const store = (next: SavedView[]) => {
    localStorage.setItem(STORAGE_KEY, JSON.stringify(next));
    setViews(next);
  };
  const save = (event: FormEvent<HTMLFormElement>) => {
    event.preventDefault();
    const form = event.currentTarget;
    const name = String(new FormData(form).get("name") ?? "").trim();
    if (name === "") return;
    store([...views.filter((view) => view.name !== name), { name, search }]);
    form.reset();
  };
  return (
    <>
      <Popover trapFocus open={isOpen} onOpenChange={(_, { open }) => setOpen(open)}>
        <PopoverTrigger disableButtonEnhancement>
          <Button size="small">Saved views</Button>
        </PopoverTrigger>
        <PopoverSurface aria-label="Saved views" className={styles.surface}>
          {views.length === 0 && <Text>No saved views yet. Set filters and columns, enter a name, and save.</Text>}
          <ul className={styles.list}>
            {views.map((view) => (
              <li key={view.name} className={styles.item}>
                <Link
                  className={styles.name}
                  onClick={() => setOpen(false)}
                  href={createHref("/inventory", Object.fromEntries(new URLSearchParams(view.search)))}
                >
                  {view.name}
                </Link>
                <Button
                  size="small"
                  aria-label={`Delete view: ${view.name}`}
                  onClick={() => store(views.filter((other) => other !== view))}
                >
                  Delete view
                </Button>
              </li>
            ))}
          </ul>
          <form onSubmit={save} className={styles.form}>
            <Input
              name="name"
              size="small"
              aria-label="Name of the view"
              placeholder="Name"
              maxLength={MAX_NAME_CHARACTERS}
              required
            />
            <Button size="small" type="submit">
              Save view
            </Button>
          </form>
          <Text size={200}>Saved in this browser. To share a view, copy its link.</Text>
        </PopoverSurface>
      </Popover>
      <Button
        size="small"
        onClick={() => void navigator.clipboard.writeText(location.href).then(() => setCopied(search))}
      >
        {copied === search ? "Link copied" : "Copy link"}
      </Button>
    </>
  );
}
