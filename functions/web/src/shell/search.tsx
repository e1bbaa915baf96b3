import { Button } from "@fluentui/react-components";
import { SearchRegular } from "@fluentui/react-icons";
import { lazy, Suspense, useEffect, useState } from "react";

/** The dialog is loaded when it is first opened. */
const SearchDialog = lazy(() => import("./search-dialog.tsx"));

/** The button in the header that opens the search. Ctrl+K and Command+K open it too, unless another dialog is open. */
export function Search({ isNarrow }: { isNarrow: boolean }) {
  const [isOpen, setOpen] = useState(false);
  useEffect(() => {
    const openByKeys = (event: KeyboardEvent) => {
      if (!(event.ctrlKey || event.metaKey) || event.altKey || event.shiftKey || event.key.toLowerCase() !== "k")
        return;
      // The browser's own action, such as focusing its address bar, would hide the search.
      event.preventDefault();
      if (!document.querySelector("[role=dialog], [role=alertdialog]")) setOpen(true);
    };
    addEventListener("keydown", openByKeys);
    return () => removeEventListener("keydown", openByKeys);
  }, []);
  return (
    <>
      <Button
        appearance="subtle"
        icon={<SearchRegular />}
        aria-label="Search"
        aria-keyshortcuts="Control+K Meta+K"
        title="Search (Ctrl+K)"
        onClick={() => setOpen(true)}
      >
        {!isNarrow && "Search (Ctrl+K)"}
      </Button>
      {isOpen && (
        <Suspense>
          <SearchDialog close={() => setOpen(false)} />
        </Suspense>
      )}
    </>
  );
}
