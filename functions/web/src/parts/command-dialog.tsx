import {
  Button,
  Dialog,
  DialogActions,
  DialogBody,
  DialogContent,
  DialogSurface,
  DialogTitle,
  DialogTrigger,
} from "@fluentui/react-components";
import type { ReactNode } from "react";

/** A button that opens a dialog with a command to copy. The service itself changes nothing. */
export function CommandDialog({
  title,
  about,
  appearance,
  children,
}: {
  title: string;
  /** Name of the asset that the command changes. */
  about: string;
  /** `primary` for the main action of a view. */
  appearance?: "primary";
  children: ReactNode;
}) {
  return (
    <Dialog>
      <DialogTrigger disableButtonEnhancement>
        <Button size="small" aria-label={`${title}: ${about}`} {...(appearance && { appearance })}>
          {title}
        </Button>
      </DialogTrigger>
      <DialogSurface>
        <DialogBody>
          <DialogTitle>
            {title}: {about}
          </DialogTitle>
          <DialogContent>{children}</DialogContent>
          <DialogActions>
            <DialogTrigger disableButtonEnhancement>
              <Button>Close</Button>
            </DialogTrigger>
          </DialogActions>
        </DialogBody>
      </DialogSurface>
    </Dialog>
  );
}
