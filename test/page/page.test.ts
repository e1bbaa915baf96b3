/** Tests of the page with one browser and one service (fixture.ts). Each file contains the tests of one subject. The order matters,
 * because later tests change data that earlier ones check.
 */
import "./views.ts";
import "./filters.ts";
import "./sessions.ts";
import "./roles.ts";
import "./untrusted-text.ts";
import "./other-sites.ts";
import "./call-counts.ts";
import "./inventory.ts";
import "./keyboard.ts";
import "./edit-conflicts.ts";
import "./forms.ts";
import "./pending-forms.ts";
import "./time-dependent.ts";
