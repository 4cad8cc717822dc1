-- What only the site needs, done while Quarto renders a page. Everything it knows of the project stands in settings.ini.
-- 1. Each page offers its notebook, at its end: tools/offer.py writes it into notebooks/, so the link works in every copy of the site, offline too.
-- 2. Links to the code host appear only when settings.ini says `published = True`; names of code link to this copy of the pages, names of arguments nowhere.
-- 3. Where the source of a function is open, its signature is not printed a second time above it.
-- 4. A full stop or a comma stays on the line of its formula.
-- 5. Where nbdev has made a link inside code, the name stays alone.
-- 6. A cell that only imports is folded, and stands with the code that follows.
-- 6b. A folded check says how many assertions it holds.
-- 6c. A fold says what its code makes.
-- 7. While nothing is published the site serves its own source: under "Install" stands where.
-- 8. What Python prints of types (`dtype: float64`, `np.float64(1.5)`) is left out of outputs.
if not FORMAT:match("html") then return {} end -- a README stays as it is

local stringify, root = pandoc.utils.stringify, quarto.project.directory .. "/.."

local function read(path)
  local file = assert(io.open(path, "rb"), path)
  local text = file:read("a")
  file:close()
  return text
end

local cfg = {}
for key, value in read(root .. "/settings.ini"):gmatch("([%w_]+) *= *([^\r\n]*)") do cfg[key] = value end
local function get(key) return (cfg[key]:gsub("%%%((%w+)%)s", cfg)) end
local published, host, repo = get("published") == "True", get("doc_host") .. get("doc_baseurl") .. "/", get("git_url")

local here = quarto.doc.input_file:sub(#quarto.project.directory + 2):gsub("\\", "/") -- this page, from the folder of all pages
local up = here:gsub("[^/]+/", "../"):gsub("[^/]+$", "") -- and back

local function under(url, address) return url:sub(1, #address) == address and url:sub(#address + 1) end

local function where_documented(target) -- a method stands on the page of its class in the API reference
  local page, class, method = target:match("^([%w_/]+)%.html#([%w_]+)%.([%w_]+)$")
  local entry = page and io.open(quarto.project.directory .. "/api/" .. class .. ".qmd", "rb")
  if not entry then return page and page .. ".html#" .. class or target end
  local known = entry:read("a"):find("{#" .. class .. "." .. method .. "}", 1, true)
  entry:close()
  return "api/" .. class .. ".html" .. (known and "#" .. class .. "." .. method or "")
end

local function of_an_argument(target) return target:match("^numerics/checks%.html#") ~= nil end -- `width` in a text is an argument, not what checks it

local function own_link(link)
  local target = under(link.target, host)
  if target and of_an_argument(target) then return link.content end
  if target then link.target = up .. where_documented(target); return link end
  if not published and under(link.target, repo) then return link.content end
end

local function with_punctuation(inlines)
  for k = #inlines - 1, 1, -1 do
    local math, after = inlines[k], inlines[k + 1]
    local mark, rest = "", ""
    if math.t == "Math" and math.mathtype == "InlineMath" and after.t == "Str" then mark, rest = after.text:match("^([.,;:!?)]*)(.*)$") end
    if mark ~= "" then
      inlines[k] = pandoc.Span({math, pandoc.Str(mark)}, {class = "nobreak"})
      if rest == "" then inlines:remove(k + 1) else inlines[k + 1] = pandoc.Str(rest) end
    end
  end
  return inlines
end

local function is_source_link(block) return not published and block.t == "Para" and stringify(block) == "source" end

local function offer(name) -- tools/offer.py writes what is offered
  local offered = name:gsub("%.ipynb$", ".zip")
  local links = {pandoc.Link("download this notebook", up .. "notebooks/" .. offered, "", {["data-noresolveinput"] = "", download = pandoc.path.filename(offered)})}
  if published then
    links[2] = pandoc.Link("view its source", repo .. "/blob/" .. get("branch") .. "/nbs/" .. name)
    links[3] = pandoc.Link("report an issue", repo .. "/issues/new")
  end
  return links
end

local function open_definitions(doc)
  local names = {}
  doc:walk {CodeBlock = function(block)
    if not block.classes:includes("cell-code") or block.attributes["code-fold"] == "true" then return end
    for name in ("\n" .. block.text):gmatch("\n *def ([%w_]+)") do names[name] = true end
    for name in ("\n" .. block.text):gmatch("\nclass ([%w_]+)") do names[name] = true end
  end}
  return names
end

local function only_imports(text)
  local some, inside = false, false
  for line in text:gmatch("[^\n]+") do
    local code = line:gsub("#.*$", ""):gsub("%s+$", "")
    if inside then inside = not code:find(")", 1, true)
    elseif code:match("^import ") or code:match("^from [%w_.]+ import ") then some, inside = true, code:find("(", 1, true) and not code:find(")", 1, true)
    elseif code ~= "" then return false end
  end
  return some
end

local function folded_imports(block)
  if block.classes:includes("cell-code") and not block.attributes["code-fold"] and only_imports(block.text) then
    block.attributes["code-fold"], block.attributes["code-summary"] = "true", "Imports"
  end
  return block
end

local function counted_checks(block) -- a closed check says how much it checks
  if block.attributes["code-summary"] == "Check" then
    local n = 0
    for _, test in ipairs {"assert%f[%W]", "assert_", "test_%l+%(", "expect_fail%("} do n = n + select(2, block.text:gsub(test, "")) end
    if n > 0 then block.attributes["code-summary"] = ("Check: %d %s"):format(n, n == 1 and "assertion" or "assertions") end
  end
  return block
end

local function made_by(div) -- what a folded cell makes, for its summary
  local figure, names, fold = div.identifier:find("^fig%-") or false, {}
  div:walk {
    Image = function() figure = true end,
    CodeBlock = function(block)
      if not block.classes:includes("cell-code") then return end
      fold = block
      for name in ("\n" .. block.text):gmatch("\ndef ([%w_]+)") do names[#names + 1] = name end
      for name in ("\n" .. block.text):gmatch("\nclass ([%w_]+)") do names[#names + 1] = name end
    end}
  if not fold then return end
  local output = #div.content > 1
  if figure then return "Code of the figure" end
  if #names > 0 and not output then return "Code: " .. table.concat(names, ", ", 1, math.min(#names, 3)) .. (#names > 3 and ", …" or "") end
  local rows = false
  div:walk {Table = function() rows = true end, RawBlock = function(raw) rows = rows or raw.text:find("<table", 1, true) end}
  return rows and "Code of the table" or output and "Code of the output" or "Code: preparation"
end

local function says_what_it_makes(div)
  if not div.classes:includes("cell") then return end
  return div:walk {CodeBlock = function(block)
    if block.attributes["code-fold"] and not block.attributes["code-summary"] then block.attributes["code-summary"] = made_by(div) end
    return block
  end}
end

local function fold_of(block) -- the code with which a cell begins, if it is folded
  local code = block and block.t == "Div" and block.classes:includes("cell") and block.content[1]
  return code and code.t == "CodeBlock" and code.attributes["code-fold"] == "true" and code or nil
end

local function is_check(code) return (code.attributes["code-summary"] or ""):find("^Check") ~= nil end

local function in_both(above, below) -- summaries; nil: what the cell makes
  if above == "Imports" or above == "Check" or not above then return below end
  if not below or below == "Check" then return above end
  return above .. "; " .. below:gsub("^Check: ", "")
end

local function imports_with_code(blocks) -- imports stand with the code that follows, after the text that leads to it
  local out, held = pandoc.Blocks {}
  for _, block in ipairs(blocks) do
    local code = block.t == "Div" and block.classes:includes("cell") and block.content[1]
    local has_code = code and code.t == "CodeBlock" and code.classes:includes("cell-code")
    local imports = has_code and code.attributes["code-summary"] == "Imports" and #block.content == 1
    if held and has_code then
      out:insert(held)
      held = nil
    end
    if imports then held = block else out:insert(block) end
  end
  if held then out:insert(held) end
  return out
end

local function in_one_fold(blocks) -- neighbouring folds with nothing to see between them
  local out = pandoc.Blocks {}
  for _, block in ipairs(blocks) do
    local above, code = fold_of(out[#out]), fold_of(block)
    if above and code and #out[#out].content == 1 and is_check(above) == is_check(code) then
      code.text = above.text .. "\n\n" .. code.text
      code.attributes["code-summary"] = in_both(above.attributes["code-summary"], code.attributes["code-summary"])
      block.content[1] = code
      out:remove()
    end
    out:insert(block)
  end
  return out
end

local function breakable(code) -- in a table a long name may break after a dot or a line below, nowhere else
  if #code.text < 16 or not code.text:find("[._]%w") then return end
  local text = code.text:gsub("&", "&amp;"):gsub("<", "&lt;"):gsub(">", "&gt;"):gsub("([._])(%w)", "%1<wbr>%2")
  return pandoc.RawInline("html", "<code>" .. text .. "</code>")
end

local function untyped(div)
  if not div.classes:includes("cell-output") then return end
  return div:walk {CodeBlock = function(block)
    block.text = block.text:gsub("np%.[%l]+%d*%(([^()\n]*)%)", "%1"):gsub("\n[^\n]*dtype: [%w_]+%s*$", "")
    return block
  end}
end

local function with_download(blocks) -- tools/pack_source.py writes both files
  if published or here ~= "index.ipynb" then return blocks end
  local name, out = get("lib_name") .. "-" .. get("version"), pandoc.Blocks {}
  local wheel = name .. "-py3-none-any.whl"
  for _, block in ipairs(blocks) do
    out:insert(block)
    if block.t == "Header" and stringify(block) == "Install" then
      out:insert(pandoc.Para {pandoc.Link("Download the package", "download/" .. wheel), pandoc.Str(", and")})
      out:insert(pandoc.CodeBlock("pip install " .. wheel, pandoc.Attr("", {"sh"})))
      out:insert(pandoc.Para {pandoc.Str("Or "), pandoc.Link("download the whole repository", "download/" .. name .. ".zip"), pandoc.Str(": notebooks (without their pictures, which a run draws again), tests and all, as a zip.")})
    end
  end
  return out
end

local function called(text) -- a signature without `-> None`; of a class, the call
  text = text:gsub("%s*%->%s*None%s*:%s*$", ":")
  return text:match("^def %u") and text:gsub("^def ", ""):gsub(":%s*$", "") or text
end

local function fitted(text) -- a signature in lines of 88 characters, its types without the modules they come from
  return (text:gsub("slice%(None, None, None%)", "slice(None)"):gsub("[%a_][%w_%.]*%.(%u[%w_]*)", "%1"):gsub("[^\n]+", function(line)
    if utf8.len(line) <= 88 then return end
    local lines, indent, remark = {""}, line:match("^ *"), ""
    for piece in (line .. " "):gmatch("[^ ]+ ") do
      if utf8.len(lines[#lines] .. piece) > 88 then lines[#lines + 1] = "" end
      lines[#lines] = (lines[#lines] == "" and indent .. (#lines > 1 and remark or "") or lines[#lines]) .. piece
      if piece == "# " then remark = "    # " end -- what follows a sign of a comment is one, on every line
    end
    return (table.concat(lines, "\n"):gsub(" +\n", "\n"):gsub(" +$", ""))
  end))
end

local function says_nothing(signature) return signature:find("%(%s*%*args, %*%*kwargs%s*%):?%s*$") end -- of a class whose fields stand in its source

local function unlinked(block) -- nbdev makes links of names in backticks, in docstrings too, where they would be read as they are written
  block.text = block.text:gsub("%[`([%w_.]+)`%]%(https?://[^%s)]*%)", "`%1`")
  return block
end

function Pandoc(doc)
  local open, blocks, above = open_definitions(doc), pandoc.Blocks {}
  for _, block in ipairs(doc.blocks) do
    local signature = block.t == "CodeBlock" and above and above.t == "Header" and #block.classes == 1
    if signature then above.classes:insert("documented"); block.text = fitted(called(block.text)) end
    local repeated = signature and open[stringify(above):match("[%w_]+$")]
    if not repeated and not (signature and says_nothing(block.text)) and not is_source_link(block) then blocks:insert(block) end
    above = block
  end
  local path = pandoc.Para {} -- the last line
  for k, link in ipairs(here:match("%.ipynb$") and offer(here) or {}) do
    if k > 1 or #path.content > 0 then path.content:insert(pandoc.Str(" · ")) end
    path.content:insert(link)
  end
  if #path.content > 0 then blocks:insert(path) end
  doc.blocks = blocks:walk {Link = own_link, Inlines = with_punctuation, CodeBlock = unlinked}
  doc.blocks = in_one_fold(imports_with_code(doc.blocks:walk {CodeBlock = folded_imports}))
  doc.blocks = with_download(doc.blocks:walk {CodeBlock = counted_checks, Div = untyped, Table = function(table) return table:walk {Code = breakable} end})
  doc.blocks = doc.blocks:walk {Div = says_what_it_makes}
  return doc
end
